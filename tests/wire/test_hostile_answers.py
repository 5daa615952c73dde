"""Hostile and clumsy merchants, phase by phase: what is recorded, how soon, and that the next delivery is unharmed."""

from __future__ import annotations

import logging
import threading
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from tests.merchant import Close, Drip, Merchant, Reply, Reset, Stall, Step, gzip_bomb
from tests.wire.conftest import DEADLINE, PATIENCE, MakeSender
from webhooks.model import Answer, Refusal, Silence

HEAD = b"HTTP/1.1 200 OK\r\n"
CLOSED = Silence("reset: closed before an answer")
NOT_HTTP = Silence("protocol: not an HTTP answer")
CUT_OFF = Silence("protocol: answer cut off in its headers")
TOO_LARGE = Silence("protocol: headers too large")
NO_HEADERS = Silence("timeout: headers")

MARGIN = 1.0
"""Seconds past the deadline by which the thread must be free."""

TOKEN, BODY = "url-token-canary", b'{"body":"body-canary"}'
HEADERS = {"X-Webhook-Id": "evt_1", "X-Webhook-Signature": "signature-canary"}


@dataclass(frozen=True)
class Case:
    """A merchant's behaviour: steps at each phase, what must be recorded, and whether the deadline ends it."""

    name: str
    expected: Answer | Silence
    answer: Sequence[Step] = ()
    before_tls: Sequence[Step] = ()
    before_request: Sequence[Step] = ()
    body: bytes = field(default=BODY)
    runs_out: bool = False


def ok(excerpt: str = "", status: int = 200) -> Answer:
    """Return the answer that has this excerpt."""
    return Answer(status, excerpt=excerpt)


def flood(data: bytes) -> Drip:
    """Write this for ever, as fast as it goes."""
    return Drip(data, size=len(data), every=0, forever=True)


EARLY = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
WARNING = b"\x15\x03\x03\x00\x02\x01\x5a"
HANDSHAKE_CLOSED = Silence("tls: closed during the handshake")
CONNECTING = [
    Case("says nothing to the TLS hello", Silence("timeout: tls"), before_tls=[Stall()], runs_out=True),
    Case("resets before TLS", HANDSHAKE_CLOSED, before_tls=[Stall(0.05), Reset()]),
    Case("closes before TLS", HANDSHAKE_CLOSED, before_tls=[Close()]),
    Case("speaks plain HTTP", Silence("tls: the answer is not TLS"), before_tls=[b"HTTP/1.1 400 No\r\n\r\n", Stall()]),
    Case(
        "drips TLS",
        Silence("timeout: tls"),
        before_tls=[b"\x16\x03\x03\x40\x00", Drip(b"\x02", forever=True)],
        runs_out=True,
    ),
    Case("floods with TLS warnings", Silence("tls: too many warn alerts"), before_tls=[flood(WARNING * 1000)]),
    Case(
        "never reads the request",
        Silence("timeout: sending"),
        before_request=[Stall()],
        body=b"x" * 20_000_000,
        runs_out=True,
    ),
    Case("closes before reading the request", CLOSED, before_request=[Close()]),
    Case("answers early, then closes", ok("no", 413), before_request=[EARLY, Stall(0.1), Close()]),
]

STATUS_LINES = [
    Case("says nothing", NO_HEADERS, [Stall()], runs_out=True),
    Case("closes without a word", CLOSED, [Close()]),
    Case("resets", CLOSED, [Reset()]),
    Case("drips the status line", NO_HEADERS, [Drip(HEAD, every=0.2)], runs_out=True),
    Case("cuts the status line", CUT_OFF, [b"HTTP/1.1 2", Close()]),
    Case("resets within the status line", CUT_OFF, [b"HTTP/1.1 2", Reset()]),
    Case("answers HTTP/0.9", NOT_HTTP, [b"<html>hello</html>\r\n", Close()]),
    Case("answers HTTP/2", NOT_HTTP, [b"HTTP/2.0 200 OK\r\n\r\n"]),
    Case("answers SSH", NOT_HTTP, [b"SSH-2.0-OpenSSH_9.6\r\n"]),
    Case("answers any bytes", NOT_HTTP, [bytes(range(256)) * 4, b"\n"]),
    Case("answers zeros for ever", NOT_HTTP, [flood(bytes(65_536))]),
    Case("underscored status", NOT_HTTP, [b"HTTP/1.1 2_0 OK\r\n\r\n"]),
    Case("signed status", NOT_HTTP, [b"HTTP/1.1 +20 OK\r\n\r\n"]),
    Case("two-digit status", NOT_HTTP, [b"HTTP/1.1 20 OK\r\n\r\n"]),
    Case("four-digit status", NOT_HTTP, [b"HTTP/1.1 2000 OK\r\n\r\n"]),
    Case("status zero", NOT_HTTP, [b"HTTP/1.1 000 OK\r\n\r\n"]),
    Case("Arabic digits", NOT_HTTP, ["HTTP/1.1 ٢٠٠ OK\r\n\r\n".encode()]),
    Case("no status", NOT_HTTP, [b"HTTP/1.1\r\n\r\n"]),
    Case("a status of 799", ok(status=799), [b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n"]),
    Case("no reason", ok(), [b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"]),
    Case("bare newlines", ok(), [b"HTTP/1.0 200 OK\nContent-Length: 0\n\n"]),
    Case("a reason in binary", ok(), [b"HTTP/1.1 200 \xff\x00\x1b[2J\r\nContent-Length: 0\r\n\r\n"]),
    Case("a blank line first", NOT_HTTP, [b"\r\nHTTP/1.1 200 OK\r\n\r\n"]),
]

CONTINUE = b"HTTP/1.1 100 Continue\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
INTERIM = [
    Case("100 then silence", NO_HEADERS, [CONTINUE + b"\r\n", Stall()], runs_out=True),
    Case("103 then an answer", ok("", 202), [HINTS + b"HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n"]),
    Case(
        "101 is not an answer",
        NO_HEADERS,
        [b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n", Stall()],
        runs_out=True,
    ),
    Case("100 for ever, slowly", NO_HEADERS, [Drip(CONTINUE + b"\r\n", size=25, forever=True)], runs_out=True),
    Case("102 for ever, fast", TOO_LARGE, [flood(b"HTTP/1.1 102 Wait\r\n\r\n" * 100)]),
    Case("100 then close", CUT_OFF, [CONTINUE + b"\r\n", Close()]),
    Case("headers of a 100 for ever", TOO_LARGE, [CONTINUE, flood(b"A: b\r\n" * 1000)]),
]

HEADS = [
    Case("drips headers", NO_HEADERS, [HEAD, Drip(b"X-A: b\r\n", forever=True)], runs_out=True),
    Case("stalls in a header", NO_HEADERS, [HEAD + b"X-A", Stall()], runs_out=True),
    Case("closes in a header", CUT_OFF, [HEAD + b"X-A: b\r\nX-B", Close()]),
    Case("closes before the blank line", CUT_OFF, [HEAD + b"X-A: b\r\n", Close()]),
    Case("resets before the blank line", CUT_OFF, [HEAD + b"X-A: b\r\n", Reset()]),
    Case("one endless header", TOO_LARGE, [HEAD + b"X-A: ", flood(b"a" * 65_536)]),
    Case("headers for ever", TOO_LARGE, [HEAD, flood(b"X: " + b"a" * 4000 + b"\r\n")]),
    Case("too many headers", Silence("protocol: headers that cannot be read"), [HEAD, b"A: b\r\n" * 101, b"\r\n"]),
    Case("a header without a colon", ok("x"), [HEAD + b"garbage\r\n\r\nx", Close()]),
    Case("headers in binary", ok(), [HEAD + b"X-\xff: \x00\x80\r\nContent-Length: 0\r\n\r\n"], runs_out=True),
]

CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
BODIES = [
    Case("closes after the headers", ok(), [HEAD + b"Content-Length: 100\r\n\r\n", Close()]),
    Case("resets after the headers", ok(), [HEAD + b"Content-Length: 100\r\n\r\n", Reset()]),
    Case("a body that is cut off", ok("short"), [HEAD + b"Content-Length: 100\r\n\r\nshort", Close()]),
    Case("a body that never comes", ok(), [HEAD + b"Content-Length: 100\r\n\r\n", Stall()], runs_out=True),
    Case("a body that drips", ok("a" * 5), [HEAD + b"\r\n", Drip(b"aaaaa", every=0.01), Stall()], runs_out=True),
    Case("a body of 2 GB, promised", ok("x"), [HEAD + b"Content-Length: 2147483648\r\n\r\nx", Stall()], runs_out=True),
    Case("an endless body", ok("z" * 2048), [HEAD + b"\r\n", flood(b"z" * 65_536)]),
    Case("two lengths", ok("abc"), [HEAD + b"Content-Length: 3\r\nContent-Length: 6\r\n\r\nabcdef"]),
    Case("a negative length", ok("abc"), [HEAD + b"Content-Length: -3\r\n\r\nabc", Close()]),
    Case("a nonsense length", ok("abc"), [HEAD + b"Content-Length: x\r\n\r\nabc", Close()]),
    Case("chunks", ok("abcde"), [CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"]),
    Case("a broken chunk", ok(), [CHUNKED + b"zz\r\nabc"]),
    Case("a chunk cut off", ok("ab"), [CHUNKED + b"5\r\nab", Close()]),
    Case("an endless chunk of size -1", ok("y" * 2048), [CHUNKED + b"-1\r\n", flood(b"y" * 65_536)]),
    Case("a chunk of 16 TB", ok("y"), [CHUNKED + b"fffffffffff\r\ny", Stall()], runs_out=True),
    Case("trailers for ever", ok("a"), [CHUNKED + b"1\r\na\r\n0\r\n", flood(b"A: b\r\n" * 1000)]),
    Case("broken gzip", ok("(gzip, not decompressed)"), [GZIP + b"abc"]),
    Case("204 with a body", ok("", 204), [b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc"]),
    Case("a body in any bytes", ok("\ufffd AB"), [HEAD + b"Content-Length: 10\r\n\r\n\xff\r\nA\x00\x1b\xe2\x80\xaeB"]),
]

CASES = [*CONNECTING, *STATUS_LINES, *INTERIM, *HEADS, *BODIES]


def play(merchant: Merchant, case: Case) -> None:
    """Have the merchant behave like this."""
    merchant.greets(before_tls=case.before_tls, before_request=case.before_request)
    merchant.answers(Reply.raw(*case.answer))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_answer_has_its_outcome_in_time_and_harms_nobody(
    case: Case, merchant: Merchant, make_sender: MakeSender, caplog: pytest.LogCaptureFixture
) -> None:
    """The outcome is the documented one, the thread is free by the deadline plus 1 s, and the next delivery works."""
    caplog.set_level(logging.DEBUG)
    deadline = DEADLINE if case.runs_out else PATIENCE
    sender = make_sender(deadline=deadline)
    play(merchant, case)
    began = time.monotonic()
    outcome = sender.post(merchant.url(f"/hook?token={TOKEN}"), HEADERS, case.body)
    assert time.monotonic() - began < deadline.total_seconds() + MARGIN
    assert outcome == case.expected
    merchant.greets()
    merchant.answers(Reply(body=b"the next one"))
    following = sender.post(merchant.url(), HEADERS, BODY)
    assert isinstance(following, Answer)
    assert replace(following, resent=False) == ok("the next one")  # a kept connection may have been closed meanwhile
    assert "canary" not in repr(outcome) + caplog.text


def test_hostile_answers_all_at_once_leave_memory_flat(merchant: Merchant, make_sender: MakeSender) -> None:
    """A hundred endless, bloated and lying answers at once cost a few megabytes together, bombs included."""
    sender = make_sender(deadline=DEADLINE)
    bomb = gzip_bomb(400)
    zeros = Reply(body=bytes(1 << 20))
    hostile = [
        Reply(headers=[("Content-Encoding", "gzip")], body=bomb),
        zeros,
        *(Reply.raw(*case.answer) for case in CASES if "endless" in case.name or "for ever" in case.name),
    ]
    merchant.answer_with(lambda request: hostile[int(request.header("X-Number") or 0) % len(hostile)])

    def post(number: int) -> Answer | Silence | Refusal:
        return sender.post(merchant.url(), HEADERS | {"X-Number": str(number)}, BODY)

    with ThreadPoolExecutor(100) as pool:
        list(pool.map(post, range(len(hostile))))
        tracemalloc.start()
        outcomes = list(pool.map(post, range(100)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert outcomes[0] == ok("(gzip, not decompressed)")
    assert peak < 40_000_000


def test_closing_the_sender_leaves_attempts_in_flight_their_deadline(
    merchant: Merchant, make_sender: MakeSender
) -> None:
    """A worker that stops does not hang on a merchant that drips."""
    sender = make_sender(deadline=DEADLINE)
    merchant.answers(Reply.raw(HEAD, Drip(b"X-A: b\r\n", forever=True)))
    with ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(sender.post, merchant.url(), HEADERS, BODY)
        merchant.wait_for(1)
        sender.close()
        assert attempt.result(timeout=DEADLINE.total_seconds() + MARGIN) == NO_HEADERS


def test_the_sender_leaves_no_thread_behind(merchant: Merchant, make_sender: MakeSender) -> None:
    """Closing it ends the watchdog; look-ups end by themselves."""
    before = set(threading.enumerate())
    sender = make_sender()
    sender.post(merchant.url(), HEADERS, BODY)
    sender.close()
    merchant.close()
    assert not [each.name for each in set(threading.enumerate()) - before if each.name == "webhooks-deadlines"]
