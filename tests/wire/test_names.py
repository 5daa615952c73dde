"""Names and addresses: what is connected to, whose fault a silent name server is, and how long it may take."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.merchant import Merchant
from tests.wire.conftest import DEADLINE, MakeSender
from webhooks.errors import LocalFault
from webhooks.model import Answer, Refusal, Silence
from webhooks.wire.sender import Sender, SendingRules

KNOWN = "example.com"


class Recorded(socket.socket):
    """A socket that writes down where it was asked to go, and does not go there."""

    asked: list[str]

    def connect(self, address: Any) -> None:
        """Write the address down."""
        Recorded.asked.append(address[0])
        raise ConnectionRefusedError(errno.ECONNREFUSED, "recorded")


@contextlib.contextmanager
def recording() -> Iterator[list[str]]:
    """Replace every socket of the process; yield the addresses that connections were asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", Recorded)
        Recorded.asked = []
        yield Recorded.asked


@pytest.fixture(scope="module")
def answers_of_dns() -> dict[str, list[str]]:
    """Hold what the resolver is to say; a test fills it."""
    return {}


@pytest.fixture(scope="module")
def strict_sender(ca: Any, answers_of_dns: dict[str, list[str]]) -> Iterator[Sender]:
    """Make a sender with the product's own rules: public addresses only."""
    sender = Sender(SendingRules(deadline=DEADLINE, ca_bundle=ca.pem), resolve=lambda _: answers_of_dns["now"])
    yield sender
    sender.close()


def is_inner(text: str) -> bool:
    """Say what the standard library thinks of an address."""
    address = ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return not mapped.is_global or mapped.is_multicast


INNER = st.sampled_from(
    ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "fe80::1%1", "nonsense"]
)
ADDRESS = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)


@given(resolved=st.lists(st.one_of(INNER, ADDRESS), max_size=5))
def test_no_resolver_answer_leads_to_an_inner_address(
    resolved: list[str], strict_sender: Sender, answers_of_dns: dict[str, list[str]]
) -> None:
    """Whatever a name resolves to, every address that a socket is asked to connect to is public."""
    answers_of_dns["now"] = resolved
    with recording() as asked:
        outcome = strict_sender.post("https://merchant.test/", {}, b"{}")
    assert not any(is_inner(address) for address in asked)
    if asked:
        assert outcome == Silence("refused")
    else:
        assert isinstance(outcome, Refusal) or outcome == Silence("dns: no such host")


HOSTS = st.one_of(
    ADDRESS,
    ADDRESS.map(lambda text: f"[{text}]"),
    st.integers(0, 2**33).map(str),
    st.integers(0, 2**33).map(hex),
    st.ip_addresses(v=4).map(lambda ip: ".".join(f"{part:04o}" for part in ip.packed)),
    st.ip_addresses(v=4).map(lambda ip: f"[::ffff:{ip}]"),
    st.ip_addresses(v=4).map(lambda ip: f"[64:ff9b::{ip}]"),
    st.text(max_size=20),
)


@given(host=HOSTS, prefix=st.sampled_from(["", "a@", "example.com\\@"]), port=st.sampled_from(["", ":443", ":0"]))
def test_no_url_leads_to_an_inner_address(
    host: str,
    prefix: str,
    port: str,
    strict_sender: Sender,
    answers_of_dns: dict[str, list[str]],
) -> None:
    """Whatever is written in place of a host, every address that a socket is asked to connect to is public."""
    answers_of_dns["now"] = ["8.8.8.8"]
    with recording() as asked:
        strict_sender.post(f"https://{prefix}{host}{port}/", {}, b"{}")
    assert not any(is_inner(address) for address in asked)


def test_an_alternating_resolver_never_reaches_loopback(merchant: Merchant, ca: Any) -> None:
    """Public, then loopback: what was checked is what is connected to, and the name is not asked twice (B9)."""
    turns = itertools.cycle([["203.0.114.1"], ["127.0.0.1"]])
    asked = []

    def resolve(host: str) -> list[str]:
        asked.append(host)
        return next(turns)

    sender = Sender(SendingRules(deadline=DEADLINE, ca_bundle=ca.pem), resolve=resolve)
    with recording() as connected:
        outcomes = [sender.post(merchant.url(), {}, b"{}") for _ in range(20)]
    sender.close()
    assert connected == ["203.0.114.1"] * 10
    assert outcomes == [Silence("refused"), Refusal("address: loopback, not a public one")] * 10
    assert asked == ["localhost"] * 20
    assert merchant.connections == 0


def test_tls_is_verified_against_the_name_and_not_the_address(ca: Any, make_sender: MakeSender) -> None:
    """The server is asked for by name (SNI), and a certificate for the address it runs on does not do."""
    with Merchant(ca, names=("127.0.0.1", "other.test")) as merchant:
        sender = make_sender()
        assert sender.post(merchant.url(host="other.test"), {}, b"") == Answer(200, excerpt="ok")
        assert sender.post(merchant.url(), {}, b"") == Silence("tls: certificate is for another host")
        assert sender.post(merchant.url(host="127.0.0.1"), {}, b"") == Answer(200, excerpt="ok")


def test_a_bad_certificate_is_named(ca: Any, make_sender: MakeSender, merchant: Merchant) -> None:
    """Expired, and signed by nobody we know."""
    with Merchant(ca, expired=True) as expired:
        assert make_sender().post(expired.url(), {}, b"") == Silence("tls: certificate expired")
    stranger = make_sender(ca_bundle=None)
    assert stranger.post(merchant.url(), {}, b"") == Silence("tls: certificate not trusted, or its chain incomplete")


def failing(number: int) -> Callable[[str], list[str]]:
    """Return a resolver that fails so for every name but the known one."""

    def resolve(host: str) -> list[str]:
        if host == KNOWN:
            return ["8.8.8.8"]
        raise socket.gaierror(number, "as it may be")

    return resolve


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (socket.EAI_NONAME, "dns: no such host"),
        (socket.EAI_NODATA, "dns: no such host"),
        (socket.EAI_AGAIN, "dns: temporary failure"),
        (socket.EAI_FAIL, "dns: temporary failure"),
        (socket.EAI_SERVICE, "dns: the name cannot be resolved"),
    ],
)
def test_a_name_that_fails_while_others_resolve_is_the_merchants(
    number: int, cause: str, make_sender: MakeSender
) -> None:
    """The known name resolves, so our resolver works."""
    assert make_sender(resolve=failing(number)).post("https://merchant.test/", {}, b"") == Silence(cause)


@pytest.mark.parametrize("number", [socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM, socket.EAI_MEMORY])
def test_when_no_name_resolves_the_fault_is_ours(number: int, make_sender: MakeSender) -> None:
    """No name server: no merchant is charged for it."""

    def resolve(host: str) -> list[str]:
        raise socket.gaierror(number, "nobody answers")

    with pytest.raises(LocalFault, match="dns"):
        make_sender(resolve=resolve).post("https://merchant.test/", {}, b"")


@pytest.mark.parametrize("others_resolve", [True, False])
def test_a_silent_name_server_ends_at_the_deadline(others_resolve: bool, make_sender: MakeSender) -> None:
    """The look-up is left behind; it is the merchant's fault when the known name resolves, and ours otherwise."""
    released = threading.Event()

    def resolve(host: str) -> list[str]:
        if host == KNOWN and others_resolve:
            return ["8.8.8.8"]
        released.wait(30)
        return ["127.0.0.1"]

    sender = make_sender(resolve=resolve, deadline=DEADLINE)
    began = time.monotonic()
    try:
        if others_resolve:
            assert sender.post("https://merchant.test/", {}, b"") == Silence("timeout: dns")
        else:
            with pytest.raises(LocalFault, match="no name server"):
                sender.post("https://merchant.test/", {}, b"")
    finally:
        released.set()
    assert time.monotonic() - began < DEADLINE.total_seconds() + 1


def test_one_dead_name_holds_one_look_up_and_too_many_are_our_fault(make_sender: MakeSender) -> None:
    """Attempts for the same name share a look-up; when all are taken by other names, nobody is charged."""
    released = threading.Event()
    asked: list[str] = []

    def resolve(host: str) -> list[str]:
        asked.append(host)
        if host != KNOWN:
            released.wait(30)
        return ["127.0.0.1"]

    sender = make_sender(resolve=resolve, deadline=DEADLINE, lookups_at_once=3)
    try:
        for _ in range(3):
            assert sender.post("https://dead.test/", {}, b"") == Silence("timeout: dns")
        assert asked.count("dead.test") == 1
        sender.post("https://dead2.test/", {}, b"")
        sender.post("https://dead3.test/", {}, b"")
        with pytest.raises(LocalFault, match="look-ups"):
            sender.post("https://dead4.test/", {}, b"")
    finally:
        released.set()


def test_a_refused_address_does_not_hide_one_that_answers(merchant: Merchant, make_sender: MakeSender) -> None:
    """The addresses of a name are tried in turn."""
    sender = make_sender(resolve=lambda _: ["127.0.0.2", "127.0.0.1"])
    assert sender.post(merchant.url(), {}, b"") == Answer(200, excerpt="ok")


def test_nobody_listening_is_refused(make_sender: MakeSender) -> None:
    """The cause is one word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert make_sender().post(f"https://merchant.test:{port}/", {}, b"") == Silence("refused")


def test_no_descriptor_left_is_our_fault(merchant: Merchant, make_sender: MakeSender) -> None:
    """A machine that has run out of sockets charges nobody, and recovers."""
    sender = make_sender()
    assert sender.post(merchant.url(host="127.0.0.1"), {}, b"") == Answer(200, excerpt="ok")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    taken = [os.dup(0) for _ in range(64)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest, *taken), limits[1]))
    try:
        with pytest.raises(LocalFault, match="EMFILE"):
            sender.post(merchant.url(), {}, b"")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in taken:
            os.close(each)
    assert sender.post(merchant.url(), {}, b"") == Answer(200, excerpt="ok")


@pytest.mark.parametrize(
    ("number", "has_route", "ours"),
    [
        (errno.ENETUNREACH, False, True),
        (errno.ENETUNREACH, True, False),
        (errno.EHOSTUNREACH, True, False),
        (errno.EADDRNOTAVAIL, True, True),
        (errno.EPERM, True, True),
    ],
)
def test_an_unreachable_network_is_ours_only_without_a_route(
    number: int, has_route: bool, ours: bool, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router's word on the way is the merchant's trouble; an empty routing table is not."""

    def connect(self: socket.socket, address: Any) -> None:
        if self.type is socket.SOCK_STREAM or not has_route:
            raise OSError(number, "as it may be")

    monkeypatch.setattr(socket, "socket", type("Unreaching", (socket.socket,), {"connect": connect}))
    sender = make_sender()
    if ours:
        with pytest.raises(LocalFault, match="network"):
            sender.post("https://merchant.test/", {}, b"")
    else:
        assert sender.post("https://merchant.test/", {}, b"") == Silence("unreachable")
