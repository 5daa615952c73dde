"""TLS sessions: resumed with whom they began, as long as a check of the certificate counts, and no reason to fail."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from tests.merchant import Merchant, Reply, Reset, Stall, Step, TestCA
from tests.wire.conftest import MakeSender
from webhooks.model import Answer, Silence
from webhooks.wire import connection, sessions
from webhooks.wire.sender import Sender

OK = Answer(200, excerpt="ok")
CLOSED = Silence("tls: closed during the handshake")
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def reused(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Collect for each handshake whether it resumed a session."""
    seen: list[bool] = []
    handshake = ssl.SSLSocket.do_handshake

    def shake(self: ssl.SSLSocket, *arguments: Any) -> None:
        handshake(self, *arguments)
        if not self.server_side:
            seen.append(bool(self.session_reused))

    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", shake)
    return seen


def post(sender: Sender, merchant: Merchant, times: int = 1, host: str = "localhost") -> list[Any]:
    """Send so many, each on a connection of its own."""
    merchant.answers(Reply(close=True))
    return [sender.post(merchant.url(host=host), {}, b"{}") for _ in range(times)]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_session_is_resumed_by_every_next_connection(
    merchant: Merchant, sender: Sender, reused: list[bool], version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first handshake is a whole one, and none after it, whichever version of TLS the merchant speaks."""
    assert merchant._tls is not None
    monkeypatch.setattr(merchant._tls, "maximum_version", version)
    assert post(sender, merchant, 4) == [OK] * 4
    assert reused == [False, True, True, True]


def test_a_session_is_resumed_with_its_own_host_and_port_only(
    ca: TestCA, make_sender: MakeSender, reused: list[bool]
) -> None:
    """Not with another name on the same port, nor on another port of the same name, nor by another sender."""
    sender = make_sender()
    with Merchant(ca) as one, Merchant(ca) as two:
        post(sender, one)
        post(sender, one, host="h1.merchant.test")
        post(sender, two)
        post(make_sender(), one)
        assert reused == [False] * 4
        post(sender, two)
        assert reused[4:] == [True]


def test_a_certificate_is_looked_at_again_when_the_check_has_had_its_time(
    merchant: Merchant, make_sender: MakeSender, reused: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming and new tickets make it no longer: an hour after the whole handshake comes another one."""
    now = [1000.0]
    for module in (sessions, connection):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    sender = make_sender()
    for minutes in (0, 50, 9, 2, 58):
        now[0] += minutes * 60
        assert post(sender, merchant) == [OK]
    assert reused == [False, True, True, False, True]


def test_no_time_at_all_resumes_nothing(merchant: Merchant, make_sender: MakeSender, reused: list[bool]) -> None:
    """So it can be switched off."""
    assert post(make_sender(session_time=timedelta(0)), merchant, 3) == [OK] * 3
    assert reused == [False] * 3


def test_no_session_outlives_its_certificate(
    tmp_path: Any, make_sender: MakeSender, reused: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in half an hour: until then it is resumed, and then it is for the handshake to say what is wrong."""
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost", not_after=datetime.now(UTC) + timedelta(minutes=30))
    ca = TestCA(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    monkeypatch.setattr(ca, "context", lambda *_names, **_rest: context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    sender = make_sender(ca_bundle=tmp_path / "ca.pem")
    with Merchant(ca) as merchant:
        post(sender, merchant)
        (kept,) = sender._adapter._dialer.sessions._last.values()
    assert timedelta(minutes=20) < timedelta(seconds=kept.until - time.monotonic()) < timedelta(minutes=30)
    assert reused == [False]


def test_a_merchant_that_knows_its_sessions_no_more_is_asked_for_its_certificate(
    ca: TestCA, make_sender: MakeSender, reused: list[bool]
) -> None:
    """Another server on the same port, one with an expired certificate, then a good one: each is judged by its own."""
    sender = make_sender()
    with Merchant(ca) as merchant:
        port = merchant.port
        post(sender, merchant)
    with Merchant(ca, expired=True, port=port) as merchant:
        assert post(sender, merchant) == [Silence("tls: certificate expired")]
    with Merchant(ca, names=["localhost", "another"], port=port) as merchant:
        assert post(sender, merchant, 2) == [OK] * 2
    assert reused == [False, False, True]


def test_a_server_that_breaks_over_a_session_gets_a_whole_handshake(
    ca: TestCA, sender: Sender, reused: list[bool]
) -> None:
    """Nothing was sent, and the attempt is not lost over what only we had wanted."""
    with Merchant(ca) as merchant:
        post(sender, merchant)
        with broken_once(merchant):
            assert post(sender, merchant) == [OK]
    assert reused == [False, False]


@contextlib.contextmanager
def broken_once(merchant: Merchant) -> Iterator[None]:
    """Have the next connection reset in its handshake, and none after it."""
    talk = merchant._talk
    first = threading.Event()

    def reset_first(line: Any) -> None:
        if not first.is_set():
            first.set()
            line.sock.recv(1)
            line.play([Reset()])
            return
        talk(line)

    merchant._talk = reset_first  # type: ignore[method-assign]
    try:
        yield
    finally:
        merchant._talk = talk  # type: ignore[method-assign]


def test_a_whole_handshake_that_breaks_is_not_tried_again(merchant: Merchant, sender: Sender) -> None:
    """A merchant whose TLS is broken sees one connection for each attempt, and one more where it had worked before."""
    broken: list[Step] = [Stall(0.05), Reset()]
    merchant.greets(before_tls=broken)
    assert [post(sender, merchant)[0] for _ in range(2)] == [CLOSED] * 2
    assert merchant.connections == 2
    merchant.greets()
    post(sender, merchant)
    merchant.greets(before_tls=broken)
    assert [post(sender, merchant)[0] for _ in range(2)] == [CLOSED] * 2
    assert merchant.connections == 2 + 1 + 2 + 1


def test_a_host_that_refuses_a_session_is_not_asked_again(
    ca: TestCA, make_sender: MakeSender, reused: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session would cost more than it saves: after one that was refused, connections are made as at first."""
    offers: list[bool] = []
    wrap = ssl.SSLContext.wrap_socket

    def wrapped(self: ssl.SSLContext, *arguments: Any, **rest: Any) -> Any:
        if "server_hostname" in rest:
            offers.append(rest["session"] is not None)
        return wrap(self, *arguments, **rest)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrapped)
    sender = make_sender()
    with Merchant(ca) as merchant:
        port = merchant.port
        post(sender, merchant)
    with Merchant(ca, names=["localhost", "knows-none-of-the-others"], port=port) as merchant:
        assert post(sender, merchant, 3) == [OK] * 3
    assert offers == [False, True, False, False]
    assert reused == [False] * 4


def test_only_so_many_sessions_are_kept(ca: TestCA, make_sender: MakeSender, reused: list[bool]) -> None:
    """Those that were used last."""
    sender = make_sender()
    sender._adapter._dialer.sessions._most = 2
    with Merchant(ca) as merchant:
        for host in ("h1", "h2", "h3", "h2", "h1"):
            post(sender, merchant, host=f"{host}.merchant.test")
    assert reused == [False, False, False, True, False]
    assert len(sender._adapter._dialer.sessions._last) == 2
