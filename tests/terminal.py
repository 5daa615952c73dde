"""A terminal for tests: a command runs in it as it would before a person's eyes."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def shown(environment: Mapping[str, str], columns: int, *arguments: str) -> str:
    """Run `webhooks …` in a terminal of so many columns, expect success, and return what stands there, unstyled."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "webhooks", *arguments]
    its_own = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(command, env={**its_own, "TERM": "xterm"}, stdout=its) as process:
        os.close(its)
        said = b""
        while piece := _read(ours):
            said += piece
    os.close(ours)
    assert process.returncode == 0, said
    return _STYLES.sub("", said.decode().replace("\r\n", "\n"))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody writes there any more
        return b""
