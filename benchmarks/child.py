"""A process of the benchmarks' own that is told what to do and says when it is done: a line of JSON each."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

Command = dict[str, Any]


class Child:
    """Runs `python -m module`; leaving the `with` block ends it."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def begin(self, command: Command) -> None:
        """Tell it what to do, and wait for nothing."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self, within: float) -> Any:
        """Return what it answers; raises RuntimeError when it fails, or says nothing `within` seconds."""
        assert self._process.stdout
        deadline = time.monotonic() + within
        while not select.select([self._process.stdout], [], [], 0.1)[0]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._module} said nothing within {within:g} s")
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise RuntimeError(f"{self._module}: {answer['error']}")
        return answer["answer"]

    def ask(self, command: Command, within: float = 60) -> Any:
        """Tell it what to do and return what it answers."""
        self.begin(command)
        return self.finish(within)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


def answering(handle: Callable[[Command], Any]) -> None:
    """Be such a process: do what each line says until there are no more."""
    for line in sys.stdin:
        try:
            answer = {"answer": handle(json.loads(line))}
        except Exception as error:
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)
