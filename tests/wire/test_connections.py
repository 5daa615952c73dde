"""Kept connections: used again, never mixed up, bounded, and told apart from a dead endpoint when closed under us."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.merchant import Close, Drip, Merchant, Reply, Request, Reset, Stall, TestCA
from tests.wire.conftest import DEADLINE, MakeSender
from webhooks.model import Answer, Silence
from webhooks.wire.deadline import Deadline
from webhooks.wire.sender import Sender

OK = Answer(200, excerpt="ok")
HEADERS = {"X-Webhook-Id": "evt_1"}
SURPLUS = b"HTTP/1.1 500 Nobody Asked\r\nContent-Length: 0\r\n\r\n"


def test_a_connection_is_kept_for_the_next_delivery(merchant: Merchant, sender: Sender) -> None:
    """Ten deliveries to one merchant take one connection."""
    assert [sender.post(merchant.url(), HEADERS, b"{}") for _ in range(10)] == [OK] * 10
    assert merchant.connections == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(close=True),
        Reply.raw(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        Reply(body=b"ok" + b" " * 200_000),
        Reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + SURPLUS),
        Reply.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + SURPLUS),
    ],
    ids=["says close", "HTTP/1.0", "body beyond the cap", "surplus", "surplus after chunks"],
)
def test_a_connection_is_not_kept_when_its_end_is_unsure(merchant: Merchant, sender: Sender, reply: Reply) -> None:
    """The next delivery opens another and gets its own answer."""
    merchant.answers(reply, Reply(202, body=b"mine"))
    assert sender.post(merchant.url(), HEADERS, b"{}") == OK
    assert sender.post(merchant.url(), HEADERS, b"{}") == Answer(202, excerpt="mine")
    assert merchant.connections == 2


def test_a_connection_closed_while_idle_is_replaced_silently(merchant: Merchant, sender: Sender) -> None:
    """The end was seen before sending: one POST, on a fresh connection."""
    sender.post(merchant.url(), HEADERS, b"{}")
    merchant.drop_connections()
    assert sender.post(merchant.url(), HEADERS, b"{}") == OK
    assert merchant.connections == 2
    assert len(merchant.requests) == 2


@pytest.mark.parametrize("end", [Close(), Reset()])
def test_a_kept_connection_that_dies_unheard_is_tried_once_more(
    merchant: Merchant, sender: Sender, end: Close | Reset
) -> None:
    """It was a reused one and no byte came: one silent retry with the same id and bytes, and the result says so."""
    merchant.answers(200, Reply.raw(end), 200)
    sender.post(merchant.url(), HEADERS, b"{}")
    assert sender.post(merchant.url(), HEADERS, b'{"n":2}') == replace(OK, resent=True)
    assert [(each.connection, each.webhook_id, each.body) for each in merchant.requests[1:]] == [
        (1, "evt_1", b'{"n":2}'),
        (2, "evt_1", b'{"n":2}'),
    ]


@pytest.mark.parametrize(
    ("replies", "cause", "posts"),
    [
        ([Reply.raw(Close())], "reset: closed before an answer", 1),
        ([200, Reply.raw(Close()), Reply.raw(Close())], "reset: closed before an answer", 3),
        ([200, Reply.raw(b"H", Close())], "protocol: answer cut off in its headers", 2),
        ([200, Reply.raw(b"HTTP/1.1 100 Continue\r\n\r\n", Close())], "protocol: answer cut off in its headers", 2),
        ([200, Reply.raw(Stall())], "timeout: headers", 2),
    ],
    ids=["fresh", "fresh after kept", "a byte came", "an interim answer came", "silence"],
)
def test_anything_else_is_an_honest_failed_attempt(
    merchant: Merchant, hasty: Sender, replies: list[int | Reply], cause: str, posts: int
) -> None:
    """No retry on a fresh connection, none after a byte, none after a timeout, and never a second one."""
    merchant.answers(*replies)
    outcomes = [hasty.post(merchant.url(), HEADERS, b"{}") for _ in range(min(len(replies), 2))]
    assert outcomes[-1] == Silence(cause, resent=posts == 3)
    assert len(merchant.requests) == posts


def test_a_kept_connection_that_we_cut_at_the_deadline_was_not_closed_under_us(
    merchant: Merchant, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog may be before the socket's own timeout: there is no time to ask for names in, and none is asked."""
    remaining = Deadline.remaining
    monkeypatch.setattr(Deadline, "remaining", lambda self: remaining(self) + 1)
    asked: list[str] = []

    def resolve(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    sender = make_sender(deadline=DEADLINE, resolve=resolve)
    merchant.answers(200, Reply.raw(Stall()))
    outcomes = [sender.post(merchant.url(), HEADERS, b"{}") for _ in range(2)]
    assert outcomes == [OK, Silence("timeout: headers")]
    assert asked == ["localhost"]


GOODBYES = [408, 421, 425]


@pytest.mark.parametrize("status", GOODBYES)
def test_a_goodbye_on_a_kept_connection_is_tried_once_more(merchant: Merchant, sender: Sender, status: int) -> None:
    """The server gave up an idle connection; the fresh one's answer counts, and the result says what came first."""
    merchant.answers(200, Reply(status, close=True), 200)
    sender.post(merchant.url(), HEADERS, b"{}")
    assert sender.post(merchant.url(), HEADERS, b'{"n":2}') == replace(OK, resent=True, stale_status=status)
    assert [(each.connection, each.webhook_id, each.body) for each in merchant.requests[1:]] == [
        (1, "evt_1", b'{"n":2}'),
        (2, "evt_1", b'{"n":2}'),
    ]
    assert sender.post(merchant.url(), HEADERS, b"{}") == OK


@pytest.mark.parametrize("status", GOODBYES)
def test_a_goodbye_on_a_fresh_connection_is_the_answer(merchant: Merchant, sender: Sender, status: int) -> None:
    """There it was said of this request: first thing, or when the one on the kept connection was tried once more."""
    merchant.answers(status)
    assert sender.post(merchant.url(), HEADERS, b"{}") == Answer(status, excerpt="ok")
    twice = Answer(status, excerpt="ok", resent=True, stale_status=status)
    assert sender.post(merchant.url(), HEADERS, b"{}") == twice
    assert len(merchant.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 409, 429, 503])
def test_any_other_answer_on_a_kept_connection_counts(merchant: Merchant, sender: Sender, status: int) -> None:
    """A merchant that refuses is not asked twice."""
    merchant.answers(200, status)
    sender.post(merchant.url(), HEADERS, b"{}")
    assert sender.post(merchant.url(), HEADERS, b"{}") == Answer(status, excerpt="ok")
    assert len(merchant.requests) == 2


def test_a_goodbye_takes_none_of_the_time_that_is_left(merchant: Merchant, hasty: Sender) -> None:
    """Its body is not waited for, and both tries share one deadline."""
    drips = Reply.raw(b"HTTP/1.1 408 Bye\r\nContent-Length: 1000\r\n\r\n", Drip(b"a", forever=True))
    merchant.answers(200, drips, 200, Reply(408), Reply.raw(Stall()))
    hasty.post(merchant.url(), HEADERS, b"{}")
    assert hasty.post(merchant.url(), HEADERS, b"{}") == replace(OK, resent=True, stale_status=408)
    assert hasty.post(merchant.url(), HEADERS, b"{}") == Silence("timeout: headers", resent=True, stale_status=408)


def test_what_was_only_sent_once_is_not_told_as_sent_twice(merchant: Merchant, make_sender: MakeSender) -> None:
    """After a goodbye no fresh connection could be opened: the reason for that is the result."""
    addresses = iter([["127.0.0.1"], []])
    sender = make_sender(resolve=lambda _host: next(addresses))
    merchant.answers(200, 408)
    sender.post(merchant.url(), HEADERS, b"{}")
    assert sender.post(merchant.url(), HEADERS, b"{}") == Silence("dns: no such host")


def test_idle_connections_are_bounded_by_host_and_in_all(merchant: Merchant, make_sender: MakeSender) -> None:
    """Twelve at once to two hosts leave two each, and three when three is the total."""
    for total, kept in ((10, 4), (3, 3)):
        sender = make_sender(idle_connections=total, idle_connections_per_host=2)
        merchant.forget()
        merchant.answer_with(together(merchant, 12))
        with ThreadPoolExecutor(12) as pool:
            hosts = [f"h{number % 2}.merchant.test" for number in range(12)]
            urls = [merchant.url(host=host) for host in hosts]
            outcomes = list(pool.map(sender.post, urls, [HEADERS] * 12, [b"{}"] * 12))
        assert outcomes == [OK] * 12
        assert len(sender._idle) == kept
        sender.close()
        assert len(sender._idle) == 0


def together(merchant: Merchant, count: int) -> Callable[[Request], int]:
    """Answer nobody before `count` requests have come."""

    def answer(request: Request) -> int:
        merchant.wait_for(count)
        return 200

    return answer


def test_a_connection_serves_its_own_host_and_port_only(ca: TestCA, sender: Sender) -> None:
    """Deliveries to three merchants in turn each arrive at their own, on one connection each."""
    with Merchant(ca) as one, Merchant(ca) as two, Merchant(ca) as three:
        for turn in range(3):
            for merchant, host in ((one, "localhost"), (two, "localhost"), (three, "h3.merchant.test")):
                assert sender.post(merchant.url(host=host), HEADERS, b"{}") == OK
                assert len(merchant.requests) == turn + 1
        assert [each.connections for each in (one, two, three)] == [1, 1, 1]


@pytest.mark.parametrize("bound", ["idle_time", "connection_age"])
def test_a_connection_is_not_kept_beyond_its_time(merchant: Merchant, make_sender: MakeSender, bound: str) -> None:
    """A bound of nothing keeps nothing: idle time and age both count."""
    nothing: dict[str, Any] = {bound: timedelta(0)}
    sender = make_sender(**nothing)
    for _ in range(3):
        sender.post(merchant.url(), HEADERS, b"{}")
    assert merchant.connections == 3
    assert len(sender._idle) == 0


def test_forty_threads_and_sixty_hosts_mix_up_no_answer(merchant: Merchant, make_sender: MakeSender) -> None:
    """600 deliveries, each answer echoing its id and setting a cookie: every answer is its own, no cookie returns."""

    def echo(request: Request) -> Reply:
        assert request.webhook_id == request.event["id"]
        body = json.dumps({"id": request.webhook_id, "host": request.header("Host")}).encode()
        cookie = ("Set-Cookie", f"session={request.webhook_id}; Path=/")
        return Reply(headers=[cookie], body=body)

    merchant.answer_with(echo)
    sender = make_sender(deadline=timedelta(seconds=20), idle_connections=32)

    def deliver(number: int) -> bool:
        host = f"h{number % 60}.merchant.test"
        body = json.dumps({"id": f"evt_{number}"}).encode()
        outcome = sender.post(merchant.url(host=host), {"X-Webhook-Id": f"evt_{number}"}, body)
        assert isinstance(outcome, Answer), outcome
        return bool(json.loads(outcome.excerpt) == {"id": f"evt_{number}", "host": f"{host}:{merchant.port}"})

    with ThreadPoolExecutor(40) as pool:
        assert all(pool.map(deliver, range(600)))
    requests = merchant.requests
    assert sorted(each.webhook_id or "" for each in requests) == sorted(f"evt_{number}" for number in range(600))
    assert not [each for each in requests if each.header("Cookie")]
    assert len(sender._idle) <= 32


def test_a_slow_merchant_does_not_slow_the_others(merchant: Merchant, make_sender: MakeSender) -> None:
    """While twenty attempts hang on one host, another host's answers come at once."""
    sender = make_sender(deadline=timedelta(seconds=1))
    merchant.answer_with(lambda request: Reply.raw(Drip(b"H", forever=True)) if request.path == "/slow" else Reply())
    with ThreadPoolExecutor(20) as pool:
        hung = [pool.submit(sender.post, merchant.url("/slow"), HEADERS, b"{}") for _ in range(20)]
        merchant.wait_for(20)
        assert sender.post(merchant.url("/quick", host="h1.merchant.test"), HEADERS, b"{}") == OK
        assert not any(each.done() for each in hung)
        assert {each.result() for each in hung} == {Silence("timeout: headers")}
