"""The command `webhooks`, also as `python -m webhooks`."""

from webhooks.process.ending import needing


def main() -> None:
    """Run it, where what it needs is installed."""
    with needing("operate"):
        from webhooks import cli  # noqa: PLC0415
    cli.main(prog_name="webhooks")


if __name__ == "__main__":
    main()
