"""Whom notices go to, on real parts: an HTTPS server, a program, a mail server."""

from __future__ import annotations

import json
import stat
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.merchant import Merchant, Reply, Stall, TestCA
from tests.telling.mailbox import Mailbox
from tests.telling.notices import NOON, notice
from webhooks.demo.stage import wait_until
from webhooks.observing.operators import NoticeKind
from webhooks.process import smtp_url
from webhooks.signing import verify
from webhooks.telling.mailing import MailRecipient
from webhooks.telling.posting import UrlRecipient
from webhooks.telling.running import PRINTED, CommandRecipient
from webhooks.telling.said import Said
from webhooks.telling.wording import compose
from webhooks.wire.sender import Sender, SendingRules

NOTIFICATION = compose([notice(NoticeKind.PAUSED)], NOON)
SOON = timedelta(seconds=0.3)


@pytest.fixture
def merchant(ca: TestCA) -> Any:
    """The operators' own receiver."""
    with Merchant(ca) as receiver:
        yield receiver


def posted(ca: TestCA, url: str, secret: str | None = None, **rules: Any) -> Said:
    """POST a notification by these rules."""
    sender = Sender(SendingRules(ca_bundle=ca.pem, **{"allow_private_addresses": True, **rules}))
    try:
        return UrlRecipient(url, secret, lambda: sender).tell(NOTIFICATION)
    finally:
        sender.close()


def test_it_is_posted_and_signed_as_merchants_events_are(ca: TestCA, merchant: Merchant) -> None:
    """JSON over checked TLS, with an id, a timestamp, and a signature where there is a secret."""
    said = posted(ca, merchant.url("/hook?token=x"), "a secret")
    assert said.taken
    assert said.words.startswith("answered 200 in ")
    (request,) = merchant.requests
    assert (request.method, request.path) == ("POST", "/hook?token=x")
    assert json.loads(request.body)["kind"] == "endpoint_paused"
    assert request.header("Content-Type") == "application/json"
    assert request.webhook_id == "notice-7"
    timestamp, signature = request.header("X-Webhook-Timestamp"), request.header("X-Webhook-Signature")
    assert timestamp == str(int(NOON.timestamp()))
    assert verify("a secret", timestamp=timestamp, signature=signature, body=request.body, tolerance=None)


def test_without_a_secret_nothing_is_signed(ca: TestCA, merchant: Merchant) -> None:
    """Rather than with an empty one, which anybody could guess."""
    assert posted(ca, merchant.url()).taken
    assert merchant.requests[0].header("X-Webhook-Signature") is None


def test_what_a_receiver_refuses_is_said(ca: TestCA, merchant: Merchant) -> None:
    """By its status; its words are for people only."""
    merchant.answers(Reply(503, body=b"we are closed"))
    said = posted(ca, merchant.url())
    assert (said.taken, said.more) == (False, "we are closed")
    assert "we are closed" not in said.words


def test_what_a_receiver_echoes_is_no_way_for_its_address_to_get_out(ca: TestCA, merchant: Merchant) -> None:
    """Nor for the secret: the answer is kept in the ledger, and shown to whoever reads notices."""
    url = merchant.url("/services/T0/PATHCANARY?token=QCANARY%21&a=b")
    merchant.answer_with(lambda request: Reply(404, body=f"Cannot POST {request.path} by SECCANARY".encode()))
    assert posted(ca, url, "SECCANARY").more == "Cannot POST /… by …"
    merchant.answer_with(lambda _: Reply(404, body=b"no PATHCANARY, no QCANARY!"))
    assert posted(ca, url, "SECCANARY").more == "no …, no …"


@pytest.mark.parametrize(
    ("argument", "printed"),
    [
        ("https://hooks.test/T0/PATHCANARY?q=1", "bad: https://…, no route"),
        ("--password=pathcanary", "bad: …, no route"),
        ("Authorization: Bearer PATHCANARY", "bad: …: Bearer …, no route"),
        ("curl https://hooks.test/pathcanary | tee", "bad: curl https://… | tee, no route"),
    ],
)
def test_what_a_command_prints_of_its_arguments_is_left_out(tmp_path: Path, argument: str, printed: str) -> None:
    """It may say that it cannot reach an address, in full."""
    program = script(tmp_path, "import sys; sys.exit(f'bad: {sys.argv[1]}, no route')")[0]
    assert CommandRecipient((program, argument)).tell(NOTIFICATION).more == printed


def test_the_guard_and_the_deadline_hold_for_operators_too(ca: TestCA, merchant: Merchant) -> None:
    """A private address is refused where merchants' are, and nobody is waited for longer than for a merchant."""
    assert not posted(ca, merchant.url(), allow_private_addresses=False).taken
    assert merchant.requests == []
    merchant.answers(Reply.raw(Stall()))
    assert posted(ca, merchant.url(), deadline=SOON) == Said(False, "timeout: headers")


def script(folder: Path, text: str) -> tuple[str, ...]:
    """Write a program, and return the command that runs it."""
    path = folder / "notify"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path), "$HOME; *"


def test_a_command_gets_json_and_none_of_our_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On its standard input, with its arguments as they stand: no shell has read them."""
    monkeypatch.setenv("WEBHOOKS_SECRETS_KEY", "SECCANARY")
    command = script(
        tmp_path,
        "import json, os, sys; print(json.dumps([sys.argv[1:], json.load(sys.stdin)['id'], list(os.environ)]))",
    )
    said = CommandRecipient(command).tell(NOTIFICATION)
    assert (said.taken, said.words) == (True, "ended with exit status 0")
    arguments, its_id, names = json.loads(said.more)
    assert (arguments, its_id) == (["$HOME; *"], "notice-7")
    assert "PATH" in names
    assert [name for name in names if name.startswith("WEBHOOKS")] == []


def test_a_command_that_fails_says_with_what(tmp_path: Path) -> None:
    """Its exit status, and the beginning of what it printed on either stream as one line."""
    command = script(tmp_path, "import sys; sys.stderr.write('no\\nroute\\x1b'); sys.exit(3)")
    assert CommandRecipient(command).tell(NOTIFICATION) == Said(False, "ended with exit status 3", "no route")


def test_a_command_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    """With its children, when its time is over; of what it printed some is kept, and nothing holds us up."""
    marker = tmp_path / "child"
    command = ("sh", "-c", f"sleep 60 & echo $! > '{marker}'; yes xxxxxxxxx")
    said = CommandRecipient(command, timedelta(seconds=2)).tell(NOTIFICATION)
    assert (said.taken, said.words) == (False, "it took longer than 2 s, and was ended")
    assert said.more == ("xxxxxxxxx " * PRINTED)[: PRINTED - 1]
    child = Path("/proc", marker.read_text().strip(), "stat")

    def has_ended() -> bool:
        try:
            return child.read_text().split()[2] == "Z"
        except OSError:
            return True

    wait_until(has_ended, "the child is gone")


def test_a_command_that_reads_nothing_is_no_trouble(tmp_path: Path) -> None:
    """Nor one that ends at once, or is not there any more."""
    assert CommandRecipient(script(tmp_path, "")).tell(NOTIFICATION).taken
    (tmp_path / "notify").unlink()
    assert CommandRecipient((str(tmp_path / "notify"),)).tell(NOTIFICATION).words.startswith("it cannot be run: ")


def mailed(box: Mailbox, url: str, ca: TestCA | None = None, *, to: tuple[str, ...] = ("ops@acme.test",)) -> Said:
    """Send a notification to a mailbox."""
    server = smtp_url.read(url.format(port=box.port))
    recipient = MailRecipient(server, "webhooks@pay.test", to, ca.pem if ca else None, timedelta(seconds=5))
    return recipient.tell(NOTIFICATION)


def test_a_mail_says_what_to_do(ca: TestCA) -> None:
    """With a subject that a person understands; TLS is used where the server offers it."""
    with Mailbox(ca.context("localhost")) as box:
        assert mailed(box, "smtp://localhost:{port}", ca, to=("ops@acme.test", "boss@acme.test")).taken
        (message,) = box.messages
        assert message["Subject"] == "[webhooks] an endpoint does not answer: acme"
        assert (message["From"], message["To"]) == ("webhooks@pay.test", "ops@acme.test, boss@acme.test")
        assert message["Auto-Submitted"] == "auto-generated"
        assert "webhooks breaker show ep_books" in message.get_content()
        assert [line.split()[0].upper() for line in box.said] == ["EHLO", "STARTTLS"]


def test_a_local_relay_needs_neither_tls_nor_login() -> None:
    """As on most hosts."""
    with Mailbox() as box:
        assert mailed(box, "smtp://localhost:{port}") == Said(True, "the server localhost has taken it")


def test_a_password_goes_through_tls_only(ca: TestCA) -> None:
    """From the first byte, or after STARTTLS; where the server has none, nothing is said of it."""
    login = ("user", "p@ss word")
    for at_once, scheme in ((True, "smtps"), (False, "smtp")):
        with Mailbox(ca.context("localhost"), at_once=at_once, login=login) as box:
            assert mailed(box, scheme + "://user:p%40ss%20word@localhost:{port}", ca).taken
            assert not any(line.startswith("AUTH") for line in box.said)
    with Mailbox(login=login) as box:
        said = mailed(box, "smtp://user:p%40ss%20word@localhost:{port}", ca)
        assert (said.taken, said.words[:24]) == (False, "the server offers no TLS")
        assert not any(line.startswith("AUTH") for line in box.said)


def test_what_a_mail_server_refuses_is_said(ca: TestCA) -> None:
    """A password, an address, a certificate; what it answered may be anything, and is not repeated."""
    with Mailbox(ca.context("localhost"), login=("user", "right")) as box:
        said = mailed(box, "smtp://user:PWCANARY@localhost:{port}", ca)
        assert said == Said(False, "the server does not take the user and password (535)")
    with Mailbox(refuses="boss@") as box:
        said = mailed(box, "smtp://localhost:{port}", to=("ops@acme.test", "boss@acme.test"))
        assert said == Said(False, "the server localhost refused boss@acme.test")
        assert mailed(box, "smtp://localhost:{port}", to=("boss@acme.test",)).words == (
            "the server refused boss@acme.test"
        )
    with Mailbox(ca.context("elsewhere.test")) as box:
        said = mailed(box, "smtp://localhost:{port}", ca)
        assert said.words.startswith("the server's certificate is not valid: ")
        assert box.messages == []


def test_a_mail_server_that_never_ends_its_greeting_is_left() -> None:
    """However often a byte of it comes."""
    with Mailbox(drips=True) as box:
        recipient = MailRecipient(smtp_url.read(f"smtp://localhost:{box.port}"), "a@b.test", ("c@d.test",), None, SOON)
        assert recipient.tell(NOTIFICATION) == Said(False, "the server broke off, or took too long")


def test_a_mail_server_that_is_not_there_is_said() -> None:
    """In words."""
    recipient = MailRecipient(smtp_url.read("smtp://localhost:1"), "a@b.test", ("c@d.test",))
    assert recipient.tell(NOTIFICATION) == Said(False, "the server cannot be reached: Connection refused")


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "user"),
    [
        ("smtp://localhost", "localhost", 25, False, None),
        ("smtp://u:p@mail.test", "mail.test", 587, False, "u"),
        ("smtps://u%40x:p@mail.test/", "mail.test", 465, True, "u@x"),
        ("smtp://[::1]:2525", "::1", 2525, False, None),
    ],
)
def test_a_mail_servers_url(url: str, host: str, port: int, tls: bool, user: str | None) -> None:
    """Its port is the usual one for what it says."""
    read = smtp_url.read(url)
    assert (read.host, read.port, read.tls, read.user) == (host, port, tls, user)
    assert "password" not in repr(read)


@pytest.mark.parametrize(
    "url",
    ["mail.test", "http://mail.test", "smtp://", "smtp://PWCANARY@h", "smtp://u:PWCANARY@h:x", "smtp://h/PWCANARY"],
)
def test_another_url_is_refused_without_being_repeated(url: str) -> None:
    """It may hold a password."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - its text is looked at below
        smtp_url.read(url)
    assert "PWCANARY" not in str(refused.value)
