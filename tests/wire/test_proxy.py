"""An outgoing proxy of our own choice: it is given checked addresses only, and its failures are ours."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.merchant import Merchant
from tests.wire.conftest import MakeSender
from webhooks.errors import LocalFault
from webhooks.model import Answer, Refusal, Silence

OK = Answer(200, excerpt="ok")


class Proxy:
    """A CONNECT proxy for one connection after another; `verdict` replaces its `200`."""

    def __init__(self, verdict: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> None:
        self.asked: list[str] = []
        self._verdict = verdict
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:canary@127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client:
                    self._tunnel(client)

    def _tunnel(self, client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(4096)
        self.asked.append(head.decode())
        client.sendall(self._verdict)
        where = re.match(r"CONNECT (\S+):(\d+) ", head.decode())
        if b" 200 " in self._verdict and where is not None:
            with socket.create_connection((where[1], int(where[2]))) as upstream:
                back = threading.Thread(target=_pass_on, args=(upstream, client))
                back.start()
                _pass_on(client, upstream)
                back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy(verdict: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> Iterator[Proxy]:
    """Run a proxy."""
    running = Proxy(verdict)
    try:
        yield running
    finally:
        running.close()


def test_a_proxy_is_given_the_checked_address_and_tls_goes_through_it(
    merchant: Merchant, make_sender: MakeSender
) -> None:
    """The proxy does not get the name, so it cannot look it up again; it sees neither path nor signature."""
    with proxy() as running:
        sender = make_sender(proxy_url=running.url)
        assert sender.post(merchant.url("/hook?token=1"), {"X-Webhook-Signature": "s"}, b"{}") == OK
        assert sender.post(merchant.url("/hook?token=1"), {"X-Webhook-Signature": "s"}, b"{}") == OK
        sender.close()
    credentials = base64.b64encode(b"user:canary").decode()
    address = f"127.0.0.1:{merchant.port}"
    assert len(running.asked) == 1
    assert running.asked[0].split("\r\n")[:2] == [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    assert f"Basic {credentials}" in running.asked[0]
    assert merchant.requests[0].header("Proxy-Authorization") is None


def test_the_guard_holds_behind_a_proxy(make_sender: MakeSender) -> None:
    """An inner address is refused before the proxy is even asked."""
    with proxy() as running:
        sender = make_sender(proxy_url=running.url, allowed_networks=())
        outcome = sender.post("https://merchant.test/", {}, b"{}")
    assert outcome == Refusal("address: loopback, not a public one")
    assert running.asked == []


@pytest.mark.parametrize(
    ("verdict", "fault"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "proxy: answered 407"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "proxy: answered 403"),
        (b"", "proxy: closed"),
        (b"hello\r\n", "proxy: closed, or answered nonsense"),
    ],
)
def test_a_proxy_that_will_not_is_our_fault(make_sender: MakeSender, verdict: bytes, fault: str) -> None:
    """No merchant is charged for our proxy, and its password is not told."""
    with proxy(verdict) as running:
        sender = make_sender(proxy_url=running.url)
        with pytest.raises(LocalFault, match=fault) as caught:
            sender.post("https://merchant.test/", {}, b"{}")
    assert "canary" not in str(caught.value)


def test_a_proxy_that_is_not_there_is_our_fault(make_sender: MakeSender) -> None:
    """Refused by the proxy's port is not refused by the merchant."""
    sender = make_sender(proxy_url="http://127.0.0.1:9")
    with pytest.raises(LocalFault, match="proxy: cannot be reached"):
        sender.post("https://merchant.test/", {}, b"{}")


def test_a_merchant_that_the_proxy_cannot_reach_is_unreachable(make_sender: MakeSender) -> None:
    """A 5xx of the proxy speaks of what lies behind it."""
    with proxy(b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as running:
        outcome = make_sender(proxy_url=running.url).post("https://merchant.test/", {}, b"{}")
    assert outcome == Silence("unreachable")
