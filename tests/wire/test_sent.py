"""Whose fault a failure is, before and after the last byte is out: from there on the merchant may have it (I4)."""

from __future__ import annotations

import errno
import http.client
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.merchant import Close, Merchant, Reply
from tests.wire.conftest import MakeSender
from webhooks.errors import LocalFault
from webhooks.model import Answer, Silence
from webhooks.wire import dialing
from webhooks.wire.answer import StrictResponse
from webhooks.wire.connection import IN_ONE_PIECE, Connection
from webhooks.wire.sender import Sender

BODY = b'{"n":1}'
CLOSED = "reset: closed before an answer"


def fails(error: Exception, *, at_call: int = 1, before: Callable[..., Any] = Connection.send) -> Callable[..., Any]:
    """Return a method that raises `error` at one of its calls; the calls `before` it do what they always did."""
    calls = 0

    def call(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < at_call:
            return before(self, *arguments)
        raise error

    return call


@pytest.mark.parametrize("number", sorted(dialing.LOCAL_ERRNOS), ids=lambda number: errno.errorcode[number])
def test_a_fault_of_ours_after_the_last_byte_is_an_attempt(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The merchant has read it all when our network fails: no fault is raised, and it is told as ours."""
    monkeypatch.setattr(StrictResponse, "begin", fails(OSError(number, "of ours")))
    cause = f"network: {errno.errorcode[number]} on this machine, after the request was sent"
    assert sender.post(merchant.url(), {}, BODY) == Silence(cause, ours=True)
    assert [request.body for request in merchant.wait_for(1)] == [BODY]


@pytest.mark.parametrize(
    ("error", "ours"),
    [(MemoryError(), True), (http.client.ResponseNotReady(), True), (KeyError("a bug"), False), (OSError(), False)],
    ids=repr,
)
def test_nothing_is_raised_after_the_last_byte(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch, error: Exception, ours: bool
) -> None:
    """Whatever it is: a silence, which is the merchant's where its answer may have brought it on."""
    monkeypatch.setattr(StrictResponse, "begin", fails(error))
    result = sender.post(merchant.url(), {}, BODY)
    assert isinstance(result, Silence)
    assert result.ours is ours
    merchant.wait_for(1)


@pytest.mark.parametrize("number", [errno.ENETDOWN, errno.ENOBUFS, errno.ENOMEM, errno.EPERM])
@pytest.mark.parametrize("part", [1, 2], ids=["headers", "body"])
def test_a_request_that_did_not_go_out_whole_was_not_made(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch, number: int, part: int
) -> None:
    """Some bytes are out, but no merchant can take a request without its end: the fault is raised, and it is ours."""
    body = BODY if part == 1 else BODY.ljust(IN_ONE_PIECE)  # a small one goes out with its headers
    monkeypatch.setattr(Connection, "send", fails(OSError(number, "of ours"), at_call=part))
    with pytest.raises(LocalFault, match=errno.errorcode[number]):
        sender.post(merchant.url(), {}, body)
    merchant.wait_until_idle()
    assert merchant.requests == []


def test_a_second_connection_that_we_cannot_open_takes_nothing_back(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept connection took the whole request and closed; whether it was read nobody knows: the attempt stands."""
    merchant.answers(200, Reply.raw(Close()), 200)
    sender.post(merchant.url(), {}, b"{}")
    monkeypatch.setattr(dialing, "_connect", fails(OSError(errno.EMFILE, "of ours")))
    cause = "network: EMFILE on this machine, after the request was sent"
    assert sender.post(merchant.url(), {}, BODY) == Silence(cause, ours=True)
    assert merchant.requests[1].body == BODY


def test_a_second_connection_that_the_guard_refuses_takes_nothing_back(
    merchant: Merchant, make_sender: MakeSender
) -> None:
    """`unsendable` would say that nothing was sent; it was, over the kept connection, and there was no answer."""
    addresses = iter(["127.0.0.1", "10.0.0.1"])
    sender = make_sender(resolve=lambda _host: [next(addresses)])
    merchant.answers(200, Reply.raw(Close()))
    sender.post(merchant.url(), {}, b"{}")
    assert sender.post(merchant.url(), {}, BODY) == Silence(CLOSED)


def test_a_kept_connection_that_dies_under_the_request_is_no_copy(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It broke before the last byte: the merchant has seen one whole request, and the result says nothing of two."""
    merchant.answers(200)
    sender.post(merchant.url(), {}, b"{}")
    kept = next(iter(sender._idle._kept))
    monkeypatch.setattr(kept, "send", _breaks_within_the_headers(kept))
    assert sender.post(merchant.url(), {}, BODY) == Answer(200, excerpt="ok")
    assert [(request.connection, request.body) for request in merchant.requests] == [(1, b"{}"), (2, BODY)]


def _breaks_within_the_headers(kept: Connection) -> Callable[[bytes], None]:
    def send(_data: bytes) -> None:
        kept.sock.shutdown(socket.SHUT_RDWR)
        raise BrokenPipeError(errno.EPIPE, "broken")

    return send


@pytest.mark.parametrize("close", ["close", "give"])
def test_an_answer_survives_whatever_fails_after_it(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch, close: str
) -> None:
    """The status line decides: a socket that cannot be closed properly costs no 2xx."""
    merchant.answers(200, Reply(close=close == "close"))
    sender.post(merchant.url(), {}, BODY)
    kept = next(iter(sender._idle._kept))
    monkeypatch.setattr(kept.sock, "close", partial(fails(OSError(errno.EIO, "of ours")), kept.sock))
    assert sender.post(merchant.url(), {}, BODY) == Answer(200, excerpt="ok")
    sender._idle.close()
    assert merchant.connections == 1
