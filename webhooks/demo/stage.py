"""A system of one's own on this machine: embedded servers, and worker, beat and Flower as real processes.

The demo, the tests and the drill stand on it. Nothing is shared with another stage: own folder, own ports.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Protocol, Self

from webhooks.errors import NotPossible

_PATIENCE = 30.0  # seconds for a process to be ready or gone

FLOWER = (
    "--max-tasks=10000",
    "--tasks-columns=uuid,args,state,result,received,started,runtime,retries,worker",
    "--read-only",
)
"""What Flower is to show, and that it changes nothing; the Procfile and Compose say the same."""


def wait_until(condition: Callable[[], object], what: str, *, timeout: float = _PATIENCE) -> None:
    """Return soon after `condition()` is true; raises NotPossible, naming `what`, after `timeout` seconds.

    What lasts long is asked about less often: asking may be a query, and many wait at once.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > timeout:
            raise NotPossible(f"not within {timeout:g} s: {what}")
        time.sleep(min(max(waited / 20, 0.01), 0.1))


class Process(Protocol):
    """What a stage needs of `subprocess.Popen`."""

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended; raises subprocess.TimeoutExpired."""

    def send_signal(self, how: int, /) -> None:
        """Send a signal, if it is still there."""

    def kill(self) -> None:
        """End it at once."""


Launch = Callable[[list[str], Mapping[str, str], Path], Process]


def spawn(arguments: list[str], environment: Mapping[str, str], log: Path) -> Process:
    """Start Python with these arguments; what it prints is added to the log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=dict(environment),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is for the demo, which ends its programs itself
        )


class Program:
    """One process with a log of its own."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path, launch: Launch = spawn) -> None:
        self._arguments = arguments
        self._environment = environment
        self._launch = launch
        self.log = log
        self.process: Process | None = None

    def start(self, *, ready: str) -> Self:
        """Start, and return once the log says `ready`. Raises NotPossible with the end of the log otherwise."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        seen = self.log.stat().st_size
        self.process = self._launch(self._arguments, self._environment, self.log)
        try:
            wait_until(lambda: self._says(ready, seen) or self._has_ended(), f"{self.log.stem} is ready")
        except NotPossible as error:
            raise NotPossible(f"{error}\n{self.last_lines()}") from None
        if self._has_ended() and not self._says(ready, seen):
            raise NotPossible(f"{self.log.stem} ended at once\n{self.last_lines()}")
        return self

    def _says(self, words: str, since: int) -> bool:
        return words.encode() in self.log.read_bytes()[since:]

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def last_lines(self, count: int = 15) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def send(self, how: Signals) -> None:
        """Send a signal, if the process is still there."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)

    def stop(self, how: Signals = Signals.SIGTERM) -> None:
        """End the process and wait until it is gone; one that does not go is killed."""
        if self.process is None:
            return
        self.send(how)
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


class Stage:
    """Worker, beat and Flower over given settings; leaving the `with` block ends what was started."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], *, ending: Signals = Signals.SIGTERM, launch: Launch = spawn
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._ending = ending
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("WEBHOOKS_")}
        self.environment |= {**settings, "PYTHONUNBUFFERED": "1"}
        self.programs: list[Program] = []

    def worker(self, name: str = "worker", *options: str) -> Program:
        """Start a worker process."""
        # Neighbours tell each other what is revoked, which nothing is here; asking takes a second.
        alone = ("--without-mingle", "--without-gossip")
        return self._celery(name, "worker", "-n", f"{name}@%h", "-l", "INFO", *alone, *options, ready=" ready.")

    def beat(self) -> Program:
        """Start beat, which sends the sweep on its way."""
        return self._celery("beat", "beat", "-l", "INFO", ready="beat: Starting...")

    def flower(self, port: int, login: str, *more: str) -> Program:
        """Start Flower on the loopback; `login` is `user:password`, `more` are further options."""
        options = ["--address=127.0.0.1", f"--port={port}", f"--basic-auth={login}", *FLOWER, *more]
        return self._celery("flower", "flower", *options, ready="Connected to redis")

    def _celery(self, name: str, *arguments: str, ready: str) -> Program:
        return self.run(name, "-m", "celery", "-A", "webhooks", *arguments, ready=ready)

    def run(self, name: str, *arguments: str, ready: str) -> Program:
        """Start a Python program that says when it is ready."""
        program = Program(list(arguments), self.environment, self._folder / f"{name}.log", self._launch)
        self.programs.append(program)
        return program.start(ready=ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for program in self.programs:
            program.send(self._ending)
        for program in self.programs:
            program.stop(self._ending)
