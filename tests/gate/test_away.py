"""The gate's Redis is away: callers hear GateUnavailable at once, and workers go on without it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import ANY

import pytest

from tests.gate.script import MERCHANT
from webhooks.demo.stage import wait_until
from webhooks.errors import GateUnavailable
from webhooks.gate.gate import Gate
from webhooks.gate.resilient import ResilientGate
from webhooks.gate.values import Admitted, Held, MayRelease, Report
from webhooks.model import HeldFor
from webhooks.observing.facts import Fact, GateAway, GateBack, GateBypassed
from webhooks.observing.observers import Observers
from webhooks.policy.breaker import BreakerRules, Effect

_HELD = Held(HeldFor.BREAKER)


class _Switched(Gate):
    """A gate that is away while the test says so, and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__("redis://127.0.0.1:1/0", BreakerRules())
        self.away = False
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()

    def admit(self, *_args: Any, **_kwargs: Any) -> Held:
        self.asked += 1
        assert self.answers.wait(timeout=2), "asked while another thread was trying"
        if self.away:
            raise GateUnavailable("away")
        return _HELD


class _Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def _server_that_says(answer: bytes) -> Iterator[str]:
    """Give the URL of a server that says this to everything, or nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, answer), daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def _serve(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            while connection.recv(65536):
                connection.sendall(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-BUSY Redis is busy running a script.\r\n",
        b"-MISCONF Redis is configured to save RDB snapshots\r\n",
        b"-NOAUTH Authentication required.\r\n",
        b"-CLUSTERDOWN The cluster is down\r\n",
        b"$7\r\nnonsense\r\n",
        b"*1\r\n$6\r\nstrange\r\n",
    ],
)
def test_every_refusal_of_the_server_is_gate_unavailable(answer: bytes) -> None:
    """Replica, full, loading, busy, not allowed, or no Redis at all."""
    with _server_that_says(answer) as url:
        gate = Gate(url, BreakerRules())
        with pytest.raises(GateUnavailable):
            gate.admit(MERCHANT, "one")
        with pytest.raises(GateUnavailable):
            gate.offer([MERCHANT])


def test_a_closed_port_is_gate_unavailable() -> None:
    """Every call says so."""
    gate = Gate("redis://127.0.0.1:1/0", BreakerRules())

    for call in (
        lambda: gate.admit(MERCHANT, "one"),
        lambda: gate.report(MERCHANT, Admitted("0:1:one"), Effect.SUCCESS),
        lambda: gate.offer([MERCHANT]),
        lambda: gate.all_drained({MERCHANT: ()}),
        lambda: gate.reset(MERCHANT),
        lambda: gate.show(MERCHANT),
        gate.list,
    ):
        with pytest.raises(GateUnavailable, match="the gate's Redis cannot be used"):
            call()


def test_a_silent_server_costs_one_short_timeout() -> None:
    """A host that accepts and never answers is given up within two seconds."""
    with _server_that_says(b"") as url:
        started = time.monotonic()
        with pytest.raises(GateUnavailable):
            Gate(url, BreakerRules()).admit(MERCHANT, "one")

    assert time.monotonic() - started < 2


def test_without_the_gate_deliveries_go_on() -> None:
    """Admitted without a token, reports that move nothing, and of whoever is held one may go."""
    gate = ResilientGate(Gate("redis://127.0.0.1:1/0", BreakerRules()))

    admitted = gate.admit(MERCHANT, "one")

    assert admitted == Admitted(None)
    assert isinstance(admitted, Admitted)
    assert gate.report(MERCHANT, admitted, Effect.FAILURE) == Report()
    assert gate.report(MERCHANT, Admitted("0:1:one"), Effect.FAILURE) == Report()
    assert gate.offer([MERCHANT, "other"]) == {MERCHANT: MayRelease((ANY,)), "other": MayRelease((ANY,))}
    gate.all_drained({MERCHANT: ()})


def test_an_outage_costs_one_try_a_second() -> None:
    """However many deliveries come meanwhile, the gate is asked once a second; and at once when it is back."""
    inner, clock = _Switched(), _Seconds()
    gate = ResilientGate(inner, clock=clock)
    inner.away = True
    for _ in range(100):
        assert gate.admit(MERCHANT, "one") == Admitted(None)
        clock.now += 0.1

    assert 8 <= inner.asked <= 11
    assert gate.bypassed == 100

    inner.away = False
    clock.now += 1
    assert gate.admit(MERCHANT, "one") == gate.admit(MERCHANT, "two") == _HELD
    assert gate.bypassed == 100


def test_an_outage_is_told_once_and_its_end_once() -> None:
    """However many deliveries it met; its end says how many calls went without, and each of them is told as well."""
    inner, clock, told = _Switched(), _Seconds(), list[Fact]()
    gate = ResilientGate(inner, clock=clock, observers=Observers([told.append]))
    for inner.away in (True, True, False, False, True):
        gate.admit(MERCHANT, "one")
        clock.now += 2

    assert told == [
        GateAway("away"),
        GateBypassed(1),
        GateBypassed(2),
        GateBack(bypassed=2),
        GateAway("away"),
        GateBypassed(3),
    ]


def test_asking_for_nobody_is_no_sign_that_it_is_back() -> None:
    """With nothing held the sweep has no question, and Redis is not asked."""
    inner, clock, told = _Switched(), _Seconds(), list[Fact]()
    gate = ResilientGate(inner, clock=clock, observers=Observers([told.append]))
    inner.away = True
    gate.admit(MERCHANT, "one")
    clock.now += 2
    assert gate.offer([]) == {}
    assert told == [GateAway("away"), GateBypassed(1)]


def test_while_one_thread_tries_the_others_do_not_wait() -> None:
    """After the pause one delivery asks and waits for its timeout; a hundred others go on meanwhile."""
    inner, clock = _Switched(), _Seconds()
    gate = ResilientGate(inner, clock=clock)
    inner.away = True
    gate.admit(MERCHANT, "one")
    clock.now += 1.5
    inner.answers.clear()
    trying = threading.Thread(target=gate.admit, args=(MERCHANT, "two"))
    trying.start()
    wait_until(lambda: inner.asked == 2, "the second try")

    assert [gate.admit(MERCHANT, "three") for _ in range(100)] == [Admitted(None)] * 100

    inner.answers.set()
    trying.join()
    assert inner.asked == 2
