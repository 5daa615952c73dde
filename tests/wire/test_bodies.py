"""After the verdict nobody waits: a body has its own short time, and what it does with it changes no outcome."""

from __future__ import annotations

import os
import ssl
import time
from datetime import timedelta

import pytest

from tests.merchant import Close, Drip, Merchant, Reply, Stall, Step
from tests.wire.conftest import MakeSender
from webhooks.model import Answer
from webhooks.process.watchdog import Vigil
from webhooks.wire.sender import Sender, SendingRules

LONG = timedelta(seconds=60)
"""A deadline that no test waits for: whoever waits for it fails."""

SHORT = timedelta(milliseconds=200)
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LENGTH = HEAD + b"Content-Length: 1000000\r\n\r\n"
ENDLESS: list[tuple[str, list[Step], str]] = [
    ("drips on", [LENGTH + b"so far ", Drip(b"a", every=0.05, forever=True)], "so far a"),
    ("never comes", [LENGTH, Stall()], ""),
    ("stops", [LENGTH + b"so far", Stall()], "so far"),
    ("is to end with the connection", [HEAD + b"\r\nso far", Stall()], "so far"),
    ("drips to the end of the connection", [HEAD + b"\r\nso far ", Drip(b"a", every=0.05, forever=True)], "so far a"),
    ("goes on in chunks", [CHUNKED, Drip(b"1\r\na\r\n", size=6, every=0.05, forever=True)], "a"),
    ("drips a chunk's size", [CHUNKED + b"6\r\nso far\r\n", Drip(b"0", every=0.05, forever=True)], "so far"),
    ("drips trailers", [CHUNKED + b"6\r\nso far\r\n0\r\n", Drip(b"A: b\r\n", every=0.05, forever=True)], "so far"),
]


@pytest.mark.parametrize(("steps", "excerpt"), [case[1:] for case in ENDLESS], ids=[case[0] for case in ENDLESS])
def test_a_body_that_does_not_end_holds_nobody(
    merchant: Merchant, make_sender: MakeSender, steps: list[Step], excerpt: str
) -> None:
    """It is delivered with the excerpt so far, long before the deadline, and the connection is closed."""
    sender = make_sender(deadline=LONG, body_time=SHORT)
    merchant.answers(Reply.raw(*steps), 200)
    began = time.monotonic()
    outcome = sender.post(merchant.url(), {}, b"{}")
    assert time.monotonic() - began < LONG.total_seconds() / 2
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.excerpt[: len(excerpt)]) == (200, excerpt)
    assert len(sender._idle) == 0
    assert sender.post(merchant.url(), {}, b"{}") == Answer(200, excerpt="ok")


def test_a_body_in_time_keeps_its_connection(merchant: Merchant, make_sender: MakeSender) -> None:
    """However many pieces it comes in."""
    sender = make_sender(deadline=LONG, body_time=LONG)
    merchant.answers(Reply.raw(HEAD + b"Content-Length: 6\r\n\r\n", Drip(b"so far", every=0.01)))
    assert [sender.post(merchant.url(), {}, b"{}") for _ in range(3)] == [Answer(200, excerpt="so far")] * 3
    assert merchant.connections == 1


def test_the_deadline_bounds_the_bodys_time(merchant: Merchant, make_sender: MakeSender) -> None:
    """A longer time for bodies gives an attempt no more than it has."""
    sender = make_sender(deadline=timedelta(seconds=1), body_time=LONG)
    merchant.answers(Reply.raw(LENGTH + b"so far", Stall()))
    began = time.monotonic()
    assert sender.post(merchant.url(), {}, b"{}") == Answer(200, excerpt="so far")
    assert time.monotonic() - began < LONG.total_seconds() / 2


def test_it_is_the_watchdog_that_ends_it(
    merchant: Merchant, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a read never comes back, as in a flood of TLS records that carry nothing, no timeout of a socket helps."""
    sender = make_sender(deadline=LONG, body_time=SHORT)
    merchant.answers(Reply.raw(LENGTH + b"so far", Stall()))
    monkeypatch.setattr(ssl.SSLSocket, "settimeout", lambda self, _seconds: self.setblocking(True))
    began = time.monotonic()
    assert sender.post(merchant.url(), {}, b"{}") == Answer(200, excerpt="so far")
    assert time.monotonic() - began < LONG.total_seconds() / 2


def test_a_body_that_has_come_with_its_head_is_not_watched_again(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One watch for each exchange, on a fresh connection as on a kept one."""
    begun: list[float] = []
    begin = Vigil.begin

    def counted(self: Vigil, until: float) -> None:
        begun.append(until)
        begin(self, until)

    monkeypatch.setattr(Vigil, "begin", counted)
    merchant.answers(Reply.raw(HEAD + b"Content-Length: 6\r\n\r\nso far"), Reply.raw(CHUNKED + b"1\r\na\r\n0\r\n\r\n"))
    for _ in range(3):
        sender.post(merchant.url(), {}, b"{}")
    assert len(begun) == 3
    merchant.answers(Reply.raw(HEAD + b"\r\nso far", Close()))
    sender.post(merchant.url(), {}, b"{}")
    assert len(begun) == 5


def test_a_kept_connection_is_watched_in_a_forked_process(merchant: Merchant, make_sender: MakeSender) -> None:
    """The watch goes with the connection, the watchdog's thread does not: the next exchange starts another."""
    sender = make_sender(deadline=timedelta(seconds=2))
    sender.post(merchant.url(), {}, b"{}")
    merchant.answers(Reply.raw(HEAD, Drip(b"X-A: b\r\n", forever=True)))
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        outcome = sender.post(merchant.url(), {}, b"{}")
        os._exit(0 if not isinstance(outcome, Answer) and time.monotonic() - began < 10 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_second_is_enough() -> None:
    """The product's number."""
    assert SendingRules().body_time == timedelta(seconds=1)
