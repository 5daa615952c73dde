"""`webhooks tail` as a process: attempts as they happen, until somebody presses Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.command import run
from tests.courier import send
from tests.forks import Fork
from tests.system import System
from webhooks.cli import tail

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}


class Tailing:
    """A `webhooks tail` that runs."""

    def __init__(self, system: System, *options: str) -> None:
        self._system = system
        self._output, self._errors = (system.folder / f"tail.{name}" for name in ("stdout", "stderr"))
        arguments = ["-m", "webhooks", "tail", *options]
        self._process = Fork(arguments, system.environment, self._output, errors=self._errors, folder=system.folder)

    def lines(self, number: int) -> list[str]:
        """Return what it has printed, once there are so many lines."""
        self._system.wait_until(lambda: self._read()[number - 1 :], f"{number} lines of tail")
        return self._read()

    def _read(self) -> list[str]:
        return self._output.read_text().splitlines() if self._output.exists() else []

    def end(self, how: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Press Ctrl-C, and return the exit status and what stands on stderr."""
        self._process.send_signal(how)
        try:
            return self._process.wait(30), self._errors.read_text()
        finally:
            self._process.kill()


@pytest.fixture
def following(system: System) -> Iterator[Any]:
    """Start one that is ended with the test."""
    begun: list[Tailing] = []

    def begin(*options: str) -> Tailing:
        begun.append(Tailing(system, *options))
        return begun[-1]

    yield begin
    for each in begun:
        each.end(signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_attempt_is_a_line_until_ctrl_c(system: System, following: Any, how: signal.Signals) -> None:
    """Whose it was, what came of it and how long it took; the end is a good one."""
    system.merchant("acme")
    send({**EVENT, "id": "evt-1"})
    one = following("--since", "1h")
    (first,) = one.lines(1)
    assert " UTC  evt-1  acme  kyc.status_changed  attempt 1: delivered 200 in " in first
    send({**EVENT, "id": "evt-2"})
    assert "evt-2" in one.lines(2)[1]
    assert one.end(how) == (0, "")


def test_an_attempt_is_an_object_a_line_and_may_be_of_the_failed_only(system: System, following: Any) -> None:
    """Whoever reads a pipe gets each at once, by names that stay."""
    system.merchant("acme").answers(404, 200)
    send({**EVENT, "id": "evt-1"})
    send({**EVENT, "id": "evt-2"})
    one = following("--json", "--failed", "--merchant", "acme", "--since", "1h")
    told = json.loads(one.lines(1)[0])
    assert (told["delivery_id"], told["number"], told["outcome"], told["status"]) == ("evt-1", 1, "rejected", 404)
    assert (told["merchant_id"], told["endpoint_id"], told["money"]) == ("acme", "acme", False)
    send({**EVENT, "id": "evt-3"})
    system.merchant("acme").answers(500)
    send({**EVENT, "id": "evt-4"})
    assert [json.loads(line)["delivery_id"] for line in one.lines(2)] == ["evt-1", "evt-4"]


def test_an_outage_of_the_ledger_is_one_line(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the ledger, says so once, and tells what was attempted before and after."""
    system.merchant("acme")
    send({**EVENT, "id": "evt-1"})
    outage = system.ledger_away()

    def look_meanwhile() -> Iterator[None]:
        yield
        with outage:
            yield
            yield
        yield
        send({**EVENT, "id": "evt-2"})
        yield
        raise KeyboardInterrupt

    looks = look_meanwhile()
    monkeypatch.setattr(tail, "sleep", lambda _: next(looks))
    told = run("tail", "--since", "1h")
    assert told.exit_code == 0
    assert [line.split("  ")[1] for line in told.stdout.splitlines()] == ["evt-1", "evt-2"]
    away, back = told.stderr.splitlines()
    assert away.startswith("webhooks: the ledger cannot be used")
    assert away.endswith("; waiting for it")
    assert back == "webhooks: the ledger is back"


def test_a_wish_to_end_that_was_swallowed_is_the_end_all_the_same(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the interrupt comes in a destructor: nobody hears of what is raised there."""
    system.merchant("acme")
    pressed: list[float] = []

    def swallow(span: float) -> None:
        pressed.append(span)
        assert len(pressed) == 1, "it goes on"
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(tail, "sleep", swallow)
    assert run("tail").exit_code == 0
