"""A notification on the standard input of a command: run without a shell, for some seconds at most."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import BinaryIO, ClassVar

from webhooks.observing.operators import RecipientName
from webhooks.telling.masking import masked
from webhooks.telling.said import Said
from webhooks.telling.wording import Notification

_PATIENCE = timedelta(seconds=10)
PRINTED = 1000  # bytes of what it prints
_PIECE = 65536


@dataclass(frozen=True, slots=True)
class CommandRecipient:
    """A program with its arguments, which may hold a token. It gets none of our settings."""

    name: ClassVar = RecipientName.COMMAND
    command: Sequence[str] = field(repr=False)
    patience: timedelta = _PATIENCE

    def tell(self, notification: Notification) -> Said:
        """Run it, and end it with all its children when its time is over; exit status 0 says that it was taken."""
        try:
            process = self._start()
        except OSError as error:
            return Said(False, f"it cannot be run: {error.strerror}")
        output = _Output(process)
        try:
            _feed(process, notification.body)
            status = process.wait(self.patience.total_seconds())
        except subprocess.TimeoutExpired:
            _kill(process)
            words = f"it took longer than {self.patience.total_seconds():g} s, and was ended"
            return Said(False, words, self._clean(output.end()))
        _kill(process)  # what it has left behind, which would keep its output open
        return Said(status == 0, f"ended with exit status {status}", self._clean(output.end()))

    def _clean(self, printed: str) -> str:
        return masked(printed, self.command[1:])

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("WEBHOOKS_")}
        return subprocess.Popen(
            self.command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


class _Output:
    """What a process prints: read to the end, so that it is never held up, and forgotten beyond the beginning."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._kept = bytearray()
        self._reading = threading.Thread(target=self._read, args=(process.stdout,), daemon=True, name="notice output")
        self._reading.start()

    def _read(self, stream: BinaryIO) -> None:
        with contextlib.suppress(OSError, ValueError):
            while piece := os.read(stream.fileno(), _PIECE):
                self._kept += piece[: PRINTED - len(self._kept)]
        stream.close()

    def end(self) -> str:
        """Return the beginning as one line of printable text."""
        self._reading.join(1.0)  # a child that left the session may keep it open
        text = " ".join(bytes(self._kept).decode(errors="replace").split())
        return "".join(each for each in text if each.isprintable())


def _feed(process: subprocess.Popen[bytes], body: bytes) -> None:
    """Write what fits into the pipe at once; a program that reads nothing must not keep us."""
    assert process.stdin is not None  # noqa: S101 - for mypy
    os.set_blocking(process.stdin.fileno(), False)
    with contextlib.suppress(OSError):
        os.write(process.stdin.fileno(), body)
    with contextlib.suppress(OSError):
        process.stdin.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
