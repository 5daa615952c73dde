"""Processes forked from one that has already imported the package: each starts in a tenth of the time.

Apart from that they are like any other: their own memory, connections, signals, output and exit status.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import measuring

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])


class Fork:
    """A Python program `-m MODULE …`, with what of `subprocess.Popen` its starters use."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        *,
        errors: Path | None = None,
        stdin: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        streams = (str(stdin or os.devnull), str(output), str(errors or output))
        where = str(folder or Path.cwd())
        self._process = CONTEXT.Process(target=_play, args=(list(arguments), dict(environment), streams, where))
        self._asking = threading.Lock()  # the exit status can be read once
        self._process.start()

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        with self._asking:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended; raises subprocess.TimeoutExpired."""
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return status

    def send_signal(self, how: int) -> None:
        """Send a signal, if it is still there."""
        if self.poll() is None and self._process.pid:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self._process.pid, how)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _play(arguments: list[str], environment: dict[str, str], streams: tuple[str, str, str], folder: str) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, (path, how) in enumerate(zip(streams, (os.O_RDONLY, _APPEND, _APPEND), strict=True)):
        os.dup2(os.open(path, how, 0o600), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - multiprocessing had put another in its place
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    minus_m, module, *rest = arguments
    assert minus_m == "-m"
    sys.path.insert(0, folder)
    sys.argv = [module, *rest]
    with measuring.forked():
        runpy.run_module(module, run_name="__main__", alter_sys=True)
