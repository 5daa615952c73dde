"""The mapping: every exception of the libraries below becomes a cause or a fault of ours, and tells nothing."""

from __future__ import annotations

import contextlib
import errno
import http.client
import inspect
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import idna
import pytest
import requests
import urllib3
from urllib3.util import ssl_match_hostname

from tests.merchant import Merchant
from webhooks.errors import InvalidAddress, LocalFault
from webhooks.model import Refusal, Silence
from webhooks.wire.adapter import GuardedAdapter
from webhooks.wire.causes import explain
from webhooks.wire.deadline import Deadline, Phase
from webhooks.wire.sender import Sender

CANARY = "https://merchant.test/hook?token=canary"
MODULES: tuple[ModuleType, ...] = (
    requests.exceptions,
    urllib3.exceptions,
    http.client,
    ssl,
    socket,
    idna,
    ssl_match_hostname,
)


def every_exception() -> Iterator[type[Exception]]:
    """Yield each exception class of the libraries, and the built-in ones that bugs raise."""
    found = [each for module in MODULES for _, each in inspect.getmembers(module, inspect.isclass)]
    builtin = [ConnectionError, BrokenPipeError, OSError, ValueError, TypeError, KeyError, UnicodeError, MemoryError]
    yield from sorted({each for each in [*found, *builtin] if issubclass(each, Exception)}, key=repr)


def instance(kind: type[Exception], *args: Any) -> Exception:
    """Make one without its constructor, which may want anything."""
    error = kind.__new__(kind)
    error.args = args
    return error


def at(phase: Phase) -> Deadline:
    """Return a deadline that is far off, in this phase."""
    deadline = Deadline(timedelta(minutes=1))
    deadline.enter(phase)
    return deadline


def told(error: Exception, deadline: Deadline) -> str:
    """Return what an operator gets to read."""
    try:
        outcome = explain(error, deadline)
    except LocalFault as fault:
        return str(fault)
    return outcome.cause


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", list(every_exception()), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_exception_is_a_short_cause_or_our_fault(kind: type[Exception], phase: Phase) -> None:
    """In every phase, bare or wrapped in one of requests' own; the text with the URL in it goes nowhere."""
    for error in (instance(kind, CANARY), requests.ConnectionError(instance(kind, CANARY))):
        text = told(error, at(phase))
        assert 0 < len(text) < 100
        assert "canary" not in text


WRAPPED: list[tuple[Exception, Phase, str]] = [
    (requests.ConnectTimeout(CANARY), Phase.CONNECT, "timeout: connect"),
    (requests.ReadTimeout(CANARY), Phase.HEADERS, "timeout: headers"),
    (TimeoutError(), Phase.TLS, "timeout: tls"),
    (ConnectionRefusedError(errno.ECONNREFUSED, "x"), Phase.CONNECT, "refused"),
    (ConnectionResetError(errno.ECONNRESET, "x"), Phase.SENDING, "reset: closed before an answer"),
    (ConnectionResetError(errno.ECONNRESET, "x"), Phase.TLS, "tls: closed during the handshake"),
    (OSError(errno.EHOSTUNREACH, "x"), Phase.CONNECT, "unreachable"),
    (socket.gaierror(socket.EAI_NONAME, "x"), Phase.DNS, "dns: no such host"),
    (http.client.BadStatusLine(CANARY), Phase.HEADERS, "protocol: not an HTTP answer"),
    (http.client.LineTooLong("header line"), Phase.HEADERS, "protocol: header line too long"),
]


@pytest.mark.parametrize(("error", "phase", "cause"), WRAPPED, ids=lambda value: str(value)[:40])
def test_the_innermost_error_names_the_cause(error: Exception, phase: Phase, cause: str) -> None:
    """However often it is wrapped on its way up."""
    pool = urllib3.HTTPSConnectionPool("merchant.test")
    wrapped = requests.ConnectionError(urllib3.exceptions.MaxRetryError(pool, CANARY, error))
    assert explain(error, at(phase)) == Silence(cause)
    assert explain(wrapped, at(phase)) == Silence(cause)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "x"),
        OSError(errno.ENOBUFS, "x"),
        OSError(errno.EADDRNOTAVAIL, "x"),
        requests.exceptions.InvalidHeader(CANARY),
        requests.ConnectionError(urllib3.exceptions.ProtocolError("x", OSError(errno.ENFILE, "x"))),
        KeyError(CANARY),
        MemoryError(),
    ],
    ids=repr,
)
def test_what_says_nothing_about_the_merchant_is_our_fault(error: Exception) -> None:
    """This machine, or a bug before anything was sent."""
    with pytest.raises(LocalFault):
        explain(error, at(Phase.SENDING))


@pytest.mark.parametrize(
    "error",
    [
        InvalidAddress("address: private, not a public one"),
        requests.exceptions.InvalidURL(CANARY),
        requests.exceptions.MissingSchema(CANARY),
        urllib3.exceptions.LocationParseError(CANARY),
        idna.IDNAError(CANARY),
        UnicodeError("label too long"),
    ],
    ids=repr,
)
def test_a_url_that_a_library_will_not_have_is_refused(error: Exception) -> None:
    """It is the merchant's to correct, and nothing was sent."""
    outcome = explain(error, at(Phase.DNS))
    assert isinstance(outcome, Refusal)
    assert "canary" not in outcome.cause


def test_an_unforeseen_error_is_the_answers_doing_while_it_is_read() -> None:
    """A merchant must not get free attempts for ever out of a bug that its answers trigger."""
    assert explain(RecursionError(CANARY), at(Phase.HEADERS)) == Silence(
        "protocol: answer that cannot be read (RecursionError)"
    )


def test_once_the_deadline_has_passed_everything_is_a_timeout() -> None:
    """The watchdog's cut looks like a reset from inside, and is told as what it is."""
    passed = Deadline(timedelta(0))
    passed.phase = Phase.HEADERS
    assert explain(http.client.RemoteDisconnected(""), passed) == Silence("timeout: headers")


def broken_by(kind: type[Exception]) -> Callable[..., requests.Response]:
    """Return an adapter's `send` that has a bug."""

    def send(*args: Any, **kwargs: Any) -> requests.Response:
        raise kind(CANARY)

    return send


def test_a_bug_is_named_by_its_place_and_not_by_its_text(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The type and the line are enough to find it; the text may hold anything."""
    monkeypatch.setattr(GuardedAdapter, "send", broken_by(KeyError))
    with pytest.raises(LocalFault, match=r"unforeseen: KeyError in tests\.wire\.test_causes, line \d+$"):
        sender.post(merchant.url(), {}, b"")


@pytest.mark.parametrize("kind", [ValueError, ssl.SSLError, urllib3.exceptions.HTTPError, requests.RequestException])
def test_post_raises_nothing_but_local_faults(
    kind: type[Exception], merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the adapter raises; and the sender is as good as before."""
    with monkeypatch.context() as patch:
        patch.setattr(GuardedAdapter, "send", broken_by(kind))
        with contextlib.suppress(LocalFault):
            assert isinstance(sender.post(merchant.url(), {}, b""), Silence)
    assert not isinstance(sender.post(merchant.url(), {}, b""), Silence)
