"""The command `webhooks`, also as `python -m webhooks`."""

import atexit
import gc
import os
import sys

from webhooks.process.ending import needing


def main() -> None:
    """Run it, where what it needs is installed."""
    _have_streams()
    gc.disable()  # until the command is loaded: to look for garbage in what stays takes a tenth of its start
    atexit.register(gc.freeze)  # and in the end, where all of it goes anyway, a twentieth
    with needing("operate"):
        from webhooks import cli  # noqa: PLC0415
    cli.main(prog_name="webhooks")


def _have_streams() -> None:
    """Put nothing in the place of a standard stream that is closed: to whoever prints or asks, there is none then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as we live


if __name__ == "__main__":
    main()
