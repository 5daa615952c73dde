"""A POST that is looked at: what is in its way, in plain words, and where its time goes."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest
import trustme

from tests.merchant import Close, Merchant, Reply, Stall, TestCA
from tests.wire.conftest import DEADLINE, MakeSender
from webhooks.model import Answer, Refusal, Silence
from webhooks.wire import causes
from webhooks.wire.addresses import Target
from webhooks.wire.deadline import Phase
from webhooks.wire.diagnosis import diagnose
from webhooks.wire.sender import Sender
from webhooks.wire.tracing import Traced

BODY = b"{}"


def found(traced: Traced) -> str:
    """Return what is said to be the matter, of what is not fine."""
    told = diagnose(traced.result, traced.target)
    assert not told.fine
    return told.found


def advice(traced: Traced) -> str:
    """Return what is said to do about it."""
    return diagnose(traced.result, traced.target).advice or ""


def reached(traced: Traced) -> list[Phase]:
    """Return the phases that were reached."""
    return [phase for phase, span in traced.phases.items() if span is not None]


def test_a_good_answer_is_fine_and_every_phase_has_its_time(merchant: Merchant, sender: Sender) -> None:
    """All of them together are no longer than it took, and the addresses are told that the name led to."""
    merchant.answers(204)
    began = time.monotonic()
    traced = sender.traced(merchant.url(), {}, BODY)
    took = time.monotonic() - began
    told = diagnose(traced.result, traced.target)
    assert (told.fine, told.found, told.advice) == (True, "all is well: it answered 204", None)
    assert reached(traced) == list(Phase)
    spans = [span.total_seconds() for span in traced.phases.values() if span is not None]
    assert min(spans) > 0
    assert sum(spans) <= took
    assert (traced.addresses, traced.target) == (
        ("127.0.0.1",),
        Target("https", "localhost", merchant.port, None, "/hook"),
    )


def test_the_time_is_told_of_the_phase_that_took_it(merchant: Merchant, hasty: Sender) -> None:
    """A merchant that does not answer costs the rest of the deadline in that phase, and none in the next."""
    merchant.answers(Reply.raw(Stall()))
    traced = hasty.traced(merchant.url(), {}, BODY)
    assert found(traced) == "it took the request, and gave no answer before the deadline"
    waited, all_of_it = traced.phases[Phase.HEADERS], [span for span in traced.phases.values() if span is not None]
    assert waited is not None
    assert waited == max(all_of_it)
    assert sum(all_of_it, timedelta()) >= DEADLINE
    assert traced.phases[Phase.BODY] is None


def test_what_is_looked_at_is_all_done_anew(merchant: Merchant, sender: Sender) -> None:
    """No kept connection hides a phase, no TLS session is resumed, and nothing of it is kept for deliveries."""
    assert isinstance(sender.post(merchant.url(), {}, BODY), Answer)
    for _ in range(2):
        assert reached(sender.traced(merchant.url(), {}, BODY)) == list(Phase)
    assert merchant.connections == 3
    assert isinstance(sender.post(merchant.url(), {}, BODY), Answer)
    assert merchant.connections == 3


def test_an_ordinary_attempt_is_not_looked_at(
    merchant: Merchant, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes the same way with the plain deadline, which counts no phase."""
    from webhooks.wire.tracing import TracedDeadline  # noqa: PLC0415

    def fail(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(TracedDeadline, "__init__", fail)
    assert isinstance(sender.post(merchant.url(), {}, BODY), Answer)


def no_such_host(_: str) -> NoReturn:
    """Resolve no name."""
    raise socket.gaierror(socket.EAI_NONAME, "unknown")


def test_a_name_that_does_not_resolve(make_sender: MakeSender) -> None:
    """It is named, with the way to check it, and no later phase was reached."""
    traced = make_sender(resolve=no_such_host).traced("https://shop.test/hook?key=canary", {}, BODY)
    assert found(traced) == "the name shop.test does not resolve: there is no such host"
    assert (advice(traced), reached(traced)) == ("check it with: dig shop.test", [Phase.DNS])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://shop.test/", "address: private, not a public one"),
        ("http://shop.test/", "url: must begin with https://"),
        ("https://10.0.0.1/", "address: private, not a public one"),
    ],
)
def test_an_address_that_our_guard_refuses(make_sender: MakeSender, url: str, why: str) -> None:
    """It is said which rule it breaks, and that nothing was sent."""
    traced = make_sender(resolve=lambda _: ["10.0.0.1"]).traced(url, {}, BODY)
    assert isinstance(traced.result, Refusal)
    assert found(traced) == f"our own guard refuses the address, and nothing was sent ({why})"


def test_a_port_where_nobody_listens(sender: Sender) -> None:
    """The connection is refused: the port is named."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    traced = sender.traced(f"https://localhost:{port}/", {}, BODY)
    assert found(traced) == f"the connection was refused: nothing listens on port {port}"
    assert reached(traced) == [Phase.DNS, Phase.CONNECT]


@pytest.fixture
def full() -> Iterator[int]:
    """A port whose queue is full: who connects hears nothing."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_port_that_drops_what_comes(hasty: Sender, full: int) -> None:
    """Nobody answers: a firewall may be in the way."""
    traced = hasty.traced(f"https://localhost:{full}/", {}, BODY)
    assert (found(traced), reached(traced)) == ("nobody answered when we connected", [Phase.DNS, Phase.CONNECT])
    assert "firewall" in advice(traced)


def test_a_certificate_that_has_expired(ca: TestCA, sender: Sender) -> None:
    """It is said so, with the command that shows it."""
    with Merchant(ca, expired=True) as merchant:
        traced = sender.traced(merchant.url(), {}, BODY)
    assert (found(traced), reached(traced)) == (
        "TLS: its certificate has expired",
        [Phase.DNS, Phase.CONNECT, Phase.TLS],
    )
    assert f"openssl s_client -connect localhost:{merchant.port} -servername localhost -showcerts" in advice(traced)


def test_a_certificate_for_another_name(ca: TestCA, sender: Sender) -> None:
    """The name is told that it should be for."""
    with Merchant(ca, names=["other.test"]) as merchant:
        traced = sender.traced(merchant.url(), {}, BODY)
    assert found(traced) == "TLS: its certificate is for another name than localhost"


def test_a_certificate_of_an_unknown_authority(tmp_path: Path, sender: Sender) -> None:
    """From the other end it looks like a chain that is incomplete: both are said, and how to tell them apart."""
    with Merchant(TestCA(tmp_path)) as merchant:
        traced = sender.traced(merchant.url(), {}, BODY)
    assert "authority that is not known here" in found(traced)
    assert "openssl s_client" in advice(traced)


@pytest.fixture
def incomplete(merchant: Merchant, tmp_path: Path, make_sender: MakeSender) -> Sender:
    """A sender that trusts the authority above the one that certified a merchant who does not send that one's own."""
    root = trustme.CA()
    leaf = root.create_child_ca().issue_cert("localhost")
    root.cert_pem.write_to_path(str(tmp_path / "root.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "leaf.pem"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    merchant._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    merchant._tls.load_cert_chain(tmp_path / "leaf.pem", tmp_path / "key.pem")
    return make_sender(ca_bundle=tmp_path / "root.pem")


def test_a_chain_that_is_incomplete(merchant: Merchant, incomplete: Sender) -> None:
    """It is said that the server must send what browsers fetch by themselves."""
    traced = incomplete.traced(merchant.url(), {}, BODY)
    assert found(traced).startswith("TLS: its certificate's chain is incomplete")
    assert "intermediate certificates" in advice(traced)


def test_a_port_that_speaks_no_tls(sender: Sender) -> None:
    """It may be the one for plain HTTP."""
    with Merchant(None) as merchant:
        merchant.greets(before_tls=[b"HTTP/1.1 400 Bad Request\r\n\r\n", Close()])
        traced = sender.traced(f"https://localhost:{merchant.port}/", {}, BODY)
    assert found(traced) == f"TLS: what listens on port {merchant.port} speaks no TLS"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply.raw(b"SSH-2.0-OpenSSH_9.6\r\n", Close()), "what it answered is no proper HTTP (protocol: "),
        (Reply.raw(Close()), "it closed the connection without an answer"),
        (Reply(301, headers=[("Location", "https://new.test/?key=canary")]), "it answered 301, a redirect to new.test"),
        (Reply(401), "it answered 401: it wants a login, or did not accept the signature"),
        (Reply(404), "it answered 404: it knows no such path"),
        (Reply(422), "it answered 422: it does not accept the request"),
        (Reply(429), "it answered 429: it has had too many requests"),
        (Reply(503), "it answered 503: its server has a fault"),
        (Reply(600), "it answered 600, which is no status of HTTP"),
    ],
)
def test_what_is_answered(merchant: Merchant, sender: Sender, reply: Reply, says: str) -> None:
    """The status, and what it most often means; of a redirect only the host."""
    merchant.answers(reply)
    traced = sender.traced(merchant.url(), {}, BODY)
    assert found(traced).startswith(says)
    assert "canary" not in found(traced)
    assert len(merchant.requests) == 1


def known_causes() -> set[str]:
    """Return every cause that the mapping has a phrase for, and a timeout in each phase."""
    source = Path(causes.__file__).read_text(encoding="utf-8")
    phrases = set(re.findall(r'"((?:dns|tls|protocol|reset|timeout): [^"{]+|refused|unreachable)"', source))
    return phrases | {f"tls: {each}" for each in causes._CERTIFICATE.values()} | {f"timeout: {each}" for each in Phase}


@pytest.mark.parametrize("cause", sorted(known_causes()))
def test_every_cause_has_plain_words(cause: str) -> None:
    """None is only repeated as it stands, and nothing in the words is left to be filled in."""
    told = diagnose(Silence(cause), Target("https", "shop.test", 8443))
    assert not told.found.startswith("no answer came")
    assert "{" not in told.found + (told.advice or "")


@pytest.mark.parametrize("make", [lambda: Silence("something new"), lambda: Silence("memory: none left", ours=True)])
def test_what_nobody_thought_of_is_told_as_it_is(make: Callable[[], Silence]) -> None:
    """An unknown cause, and a fault of ours, which is named as one."""
    assert make().cause in diagnose(make(), None).found
