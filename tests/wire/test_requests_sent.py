"""What leaves the worker: the exact bytes, our own headers, and nothing that the machine's surroundings suggest."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from requests.structures import CaseInsensitiveDict

from tests.merchant import Merchant, Reply, Stall
from tests.wire.conftest import MakeSender, to_loopback
from tests.wire.test_signing import independent_hmac
from webhooks.errors import LocalFault, SettingsError
from webhooks.model import Answer, Refusal, Silence
from webhooks.process.watchdog import Watchdog
from webhooks.signing import sign
from webhooks.wire.addresses import Target
from webhooks.wire.connection import Connection
from webhooks.wire.deadline import Deadline
from webhooks.wire.prepared import Prepared
from webhooks.wire.sender import Sender, SendingRules

OK = Answer(200, excerpt="ok")


@settings(max_examples=60)
@given(body=st.binary(max_size=2000))
def test_a_merchant_receives_the_accepted_bytes_at_every_attempt(
    body: bytes, merchant: Merchant, sender: Sender
) -> None:
    """Twice on a kept connection and once on a fresh one: the same bytes, and a signature that checks out by hand."""
    merchant.forget()
    for stamp in ("1760000000", "1760000001"):
        headers = {"X-Webhook-Timestamp": stamp, "X-Webhook-Signature": sign("secret", stamp, body)}
        assert sender.post(merchant.url(), headers, body) == OK
    merchant.drop_connections()
    assert sender.post(merchant.url(), headers, body) == OK
    for request in merchant.requests:
        assert request.body == body
        stamp = request.header("X-Webhook-Timestamp") or ""
        assert request.header("X-Webhook-Signature") == independent_hmac(b"secret", stamp.encode() + b"." + body)


@pytest.mark.parametrize("size", [0, 1, 262_144, 1_000_000])
def test_every_request_has_its_length_and_is_never_chunked(merchant: Merchant, sender: Sender, size: int) -> None:
    """Strict receivers need `Content-Length` once and no `Transfer-Encoding`, for no byte as for a million (G8)."""
    assert sender.post(merchant.url(), {"X-Webhook-Id": "evt_1"}, b"x" * size) == OK
    request = merchant.requests[0]
    assert request.body == b"x" * size
    assert request.method == "POST"
    assert [value for name, value in request.headers if name.lower() == "content-length"] == [str(size)]
    assert request.header("Transfer-Encoding") is None


def test_the_headers_are_ours(merchant: Merchant, sender: Sender) -> None:
    """No invitation to compress, JSON unless said otherwise, the caller's own as given."""
    sender.post(merchant.url(), {"X-Webhook-Id": "evt_1", "User-Agent": "mine/1"}, b"{}")
    assert dict(merchant.requests[0].headers) == {
        "User-Agent": "mine/1",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "X-Webhook-Id": "evt_1",
        "Content-Length": "2",
        "Host": f"localhost:{merchant.port}",
    }


def test_a_header_is_the_same_in_any_case_and_what_frames_the_request_is_ours(
    merchant: Merchant, sender: Sender
) -> None:
    """One of each goes out, also on a kept connection: the caller's instead of the usual one, ours instead of his."""
    for _ in range(2):
        sender.post(merchant.url(), {"content-TYPE": "text/x", "host": "elsewhere", "content-length": "9"}, b"{}")
    for request in merchant.requests:
        sent = {name.lower(): value for name, value in request.headers}
        assert len(sent) == len(request.headers)
        assert (sent["content-type"], sent["content-length"]) == ("text/x", "2")
        assert sent["host"] == f"localhost:{merchant.port}"


def test_what_is_prepared_for_one_url_serves_no_other(merchant: Merchant, sender: Sender) -> None:
    """Paths, queries and hosts in turn, each with headers of its own: nothing is left from the one before."""
    urls = [
        merchant.url(path, host=host) for host in ("localhost", "h1.merchant.test") for path in ("/a?x=1", "/a?x=2")
    ]
    for number in range(8):
        sender.post(urls[number % 4], {f"X-{number}": "own"}, b"{}")
    for number, request in enumerate(merchant.requests):
        assert urls[number % 4] == f"https://{request.header('Host')}{request.path}"
        assert [name for name, value in request.headers if value == "own"] == [f"X-{number}"]


def test_a_name_is_looked_up_and_guarded_for_every_new_connection(merchant: Merchant, make_sender: MakeSender) -> None:
    """What is kept of a URL says nothing about where its name leads now (I12)."""
    addresses = iter(["127.0.0.1", "10.0.0.1", "127.0.0.1"])
    sender = make_sender(resolve=lambda _host: [next(addresses)])
    merchant.answers(Reply(close=True))
    told = [sender.post(merchant.url(), {}, b"{}") for _ in range(3)]
    assert told == [OK, Refusal("address: private, not a public one"), OK]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nX-Evil: 1", "日本", " leading"])
def test_a_header_that_cannot_be_sent_is_our_fault_and_not_two_headers(
    merchant: Merchant, sender: Sender, value: str
) -> None:
    """Headers are ours, so a bad one is a bug of ours: no merchant is charged, nothing is smuggled in (B13)."""
    with pytest.raises(LocalFault) as caught:
        sender.post(merchant.url("/hook?token=canary"), {"X-Custom": value}, b"{}")
    assert "canary" not in str(caught.value)
    assert not [each for each in merchant.requests if each.header("X-Evil")]
    assert sender.post(merchant.url(), {}, b"{}") == OK


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/", {"X": "a\r\nX-Evil: canary"}), ("/", {"X": "canary\n"}), ("/", {"X\r": "canary"}), ("/\ncanary", {})],
)
def test_no_connection_sends_two_lines_for_one(path: str, headers: dict[str, str]) -> None:
    """Whatever was let through above it: not a byte goes out."""
    target = Target("http", "localhost", 80, None, path)
    prepared = Prepared(target, ("http", "localhost", 80), CaseInsensitiveDict())
    here, there = socket.socketpair()
    with there:
        connection = Connection(prepared.key, here, Watchdog().vigil(here))
        with here, pytest.raises(LocalFault) as caught:
            connection.exchange(prepared.head(headers, b""), b"", Deadline(timedelta(seconds=5)))
        assert there.recv(100) == b""
    assert "canary" not in str(caught.value)


def test_nothing_ambient_is_used(
    merchant: Merchant, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Proxies, netrc, CA paths and key logs of the environment change nothing (B10, B15)."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login user password secret\n")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "/nope")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    monkeypatch.setenv("no_proxy", "")
    assert make_sender().post(merchant.url(), {}, b"{}") == OK
    assert merchant.requests[0].header("Authorization") is None
    assert not (tmp_path / "keys").exists()


def test_the_cas_of_the_environment_are_not_trusted(
    ca: Any, merchant: Merchant, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the product's setting adds a CA."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(ca.pem))
    outcome = make_sender(ca_bundle=None).post(merchant.url(), {}, b"{}")
    assert outcome == Silence("tls: certificate not trusted, or its chain incomplete")


def test_no_cookie_comes_back(merchant: Merchant, sender: Sender) -> None:
    """A cookie set on one path of a host is not sent with the next request to another (B11)."""
    merchant.answers(Reply(headers=[("Set-Cookie", "a=b; Path=/"), ("Set-Cookie2", "c=d")]))
    for path in ("/one", "/two"):
        sender.post(merchant.url(path), {}, b"{}")
    assert not [each for each in merchant.requests if each.header("Cookie")]


@pytest.mark.parametrize("content", [None, b"", b"not a certificate"])
def test_a_ca_bundle_that_cannot_be_used_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    """Missing, empty or nonsense: the worker says so before it sends anything."""
    bundle = tmp_path / "ca.pem"
    if content is not None:
        bundle.write_bytes(content)
    with pytest.raises(LocalFault, match=r"CA bundle .*ca\.pem"):
        Sender(SendingRules(ca_bundle=bundle))


def test_a_ca_bundle_that_goes_away_later_does_no_harm(merchant: Merchant, ca: Any, tmp_path: Path) -> None:
    """It is read once, at the start."""
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(ca.pem.read_bytes())
    rules = SendingRules(ca_bundle=bundle, allowed_networks=(ip_network("127.0.0.0/8"),))
    sender = Sender(rules, resolve=to_loopback)
    bundle.unlink()
    assert sender.post(merchant.url(), {}, b"{}") == OK
    sender.close()


@pytest.mark.parametrize(
    "url", ["socks5://p:1", "p:3128", "http://", "http://p:99999", "http://p/path", "https://u:canary@p"]
)
def test_a_proxy_that_cannot_be_used_stops_the_start_without_showing_its_password(url: str) -> None:
    """Only `http://[user:password@]host[:port]` is understood."""
    with pytest.raises(SettingsError, match="proxy") as caught:
        Sender(SendingRules(proxy_url=url))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_recorded_with_its_host_and_never_followed(
    merchant: Merchant, sender: Sender, status: int
) -> None:
    """The merchant can be told which address to register; nothing, least of all a signature, is sent there (B6, G4)."""
    merchant.answers(Reply(status, headers=[("Location", merchant.url("/login", host="www.merchant.test"))], body=b""))
    outcome = sender.post(merchant.url(), {"X-Webhook-Signature": "s"}, b"{}")
    assert outcome == Answer(status, redirect_host="www.merchant.test")
    assert len(merchant.requests) == 1


@pytest.mark.parametrize(
    ("location", "host"),
    [
        (None, None),
        ("", None),
        ("/elsewhere?token=1", "localhost"),
        ("//other.example/x", "other.example"),
        ("https://user:canary@other.example:444/x?canary", "other.example"),
        ("http://[::1", None),
        ("https://OTHER.example", "other.example"),
        ("https://" + "a" * 500 + "/", "a" * 253),
        ("https://b\xfccher.example/", "b\xfccher.example"),
        ("not a url", "localhost"),
    ],
)
def test_whatever_location_says_only_a_host_is_recorded(
    merchant: Merchant, sender: Sender, location: str | None, host: str | None
) -> None:
    """No path, query or credentials of where it points to."""
    merchant.answers(Reply(302, headers=[("Location", location)] if location is not None else [], body=b""))
    assert sender.post(merchant.url(), {}, b"{}") == Answer(302, redirect_host=host)


@pytest.mark.parametrize(
    ("values", "recorded"),
    [
        (["120"], "120"),
        (["  120 "], "120"),
        (["Fri, 31 Dec 1999 23:59:59 GMT"], "Fri, 31 Dec 1999 23:59:59 GMT"),
        (["120", "3600"], "120"),
        (["1" * 5000], "1" * 128),
        (["\xff\x01abc"], "\xffabc"),
        ([""], ""),
        ([], None),
    ],
)
def test_retry_after_is_passed_on_as_it_came(
    merchant: Merchant, sender: Sender, values: list[str], recorded: str | None
) -> None:
    """The first of several; printable, short, and otherwise untouched: the rules judge it."""
    merchant.answers(Reply(429, headers=[("Retry-After", value) for value in values], body=b""))
    assert sender.post(merchant.url(), {}, b"{}") == Answer(429, retry_after=recorded)


def test_an_answer_just_in_time_counts_and_just_too_late_does_not(merchant: Merchant, make_sender: MakeSender) -> None:
    """The deadline is where the contract says, to a tenth of it; reset right after the headers is in time (G2)."""
    sender = make_sender(deadline=timedelta(seconds=1))
    merchant.answers(Reply(after=0.85), Reply(after=1.15))
    assert sender.post(merchant.url(), {}, b"{}") == OK
    assert sender.post(merchant.url(), {}, b"{}") == Silence("timeout: headers")


def test_plain_http_is_sent_only_when_allowed(make_sender: MakeSender) -> None:
    """Development's switch; without it the guard refuses before anything is sent."""
    with Merchant(None) as merchant:
        assert make_sender(allow_http=True).post(merchant.url(), {}, b"{}") == OK
        assert make_sender().post(merchant.url(), {}, b"{}") == Refusal("url: must begin with https://")
        assert len(merchant.requests) == 1


def test_a_sender_of_a_forked_process_keeps_its_deadlines(merchant: Merchant, hasty: Sender) -> None:
    """The watchdog's thread does not survive a fork; the next attempt starts another."""
    hasty.post(merchant.url(), {}, b"{}")
    merchant.drop_connections()
    merchant.answers(Reply.raw(b"HTTP/1.1 200 OK\r\n", Stall()))
    child = os.fork()
    if child == 0:
        outcome = hasty.post(merchant.url(), {}, b"{}")
        os._exit(0 if outcome == Silence("timeout: headers") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
