"""The command `webhooks`, also as `python -m webhooks`."""

import gc

from webhooks.process.ending import needing


def main() -> None:
    """Run it, where what it needs is installed."""
    gc.disable()  # until the command is loaded: to look for garbage in what stays takes a tenth of its start
    with needing("operate"):
        from webhooks import cli  # noqa: PLC0415
    cli.main(prog_name="webhooks")


if __name__ == "__main__":
    main()
