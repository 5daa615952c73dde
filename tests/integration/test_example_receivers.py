"""The receivers that the merchants' documents show: they run, and do what the documents say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import done
from tests.courier import attempt, send
from tests.integration.receiver import Receiver, express, flask, signed
from tests.system import System
from tests.test_merchant_docs import blocks
from webhooks import parts
from webhooks.model import Changes
from webhooks.policy.decisions import Delivered
from webhooks.signing import sign

OLD, NEW = "the old secret", "the new secret, Zoë"
BODY = json.dumps(
    {"id": "evt-1", "type": "payment.status_changed", "payment_id": "pay-evt-1", "status": "paid"}
).encode()

Start = Callable[..., Receiver]


@pytest.fixture(params=[flask, express], ids=["flask", "express"])
def start(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Say how to start a receiver with these secrets."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "express"
    folder.mkdir(exist_ok=True)
    command = request.param(folder)

    def start(*secrets: str) -> Receiver:
        names = ("WEBHOOK_SECRET", "WEBHOOK_SECRET_NEXT")
        return Receiver(command, tmp_path, dict(zip(names, secrets, strict=False)))

    return start


def event(number: int) -> dict[str, str]:
    """Return an event that a receiver prints."""
    return {
        "id": f"evt-{number}",
        "type": "payment.status_changed",
        "status": "paid",
        "merchant_id": "acme",
        "payment_id": f"pay-{number}",
        "note": "Zoë 🧾 日本",
    }


def test_a_receiver_takes_a_delivery_once(system: System, start: Start) -> None:
    """It verifies what we send, answers 200, takes an unknown type in its stride, and drops a copy by its id."""
    system.set(allow_http="true")
    with start(OLD) as receiver:
        parts.endpoints().set("acme", Changes(url=receiver.url, secret=OLD))
        assert send(event(1)) == Delivered()
        assert send({**event(2), "type": "moon.phase_changed"}) == Delivered()
        parts.replays().replay(["evt-1"], again=True)
        (again,) = parts.backlog().release({"acme": 1})["acme"]
        assert attempt(again) == Delivered()
        assert send(event(3)) == Delivered()
        assert receiver.handled == ["pay-1", "pay-3"]
    assert system.delivery("evt-1")["attempts"] == 2


@pytest.mark.parametrize(
    "holds", [[OLD], [NEW], [OLD, NEW], [NEW, OLD]], ids=["the old", "the new", "both", "both, swapped"]
)
def test_during_an_overlap_a_receiver_verifies_with_either_secret(
    system: System, start: Start, holds: list[str]
) -> None:
    """Whichever secret it holds, nothing is refused while one replaces the other; after that the old one is."""
    system.set(allow_http="true")
    with start(*holds) as receiver:
        parts.endpoints().set("acme", Changes(url=receiver.url, secret=OLD))
        done("merchant", "rotate-secret", "acme", "--secret", NEW)
        assert send(event(1)) == Delivered()
        done("merchant", "rotate-secret", "acme", "--finish")
        assert (send(event(2)) == Delivered()) is (NEW in holds)
        assert receiver.handled == (["pay-1", "pay-2"] if NEW in holds else ["pay-1"])


def test_garbage_is_refused_cleanly(start: Start) -> None:
    """Whatever a stranger sends is answered 401 or 400 without a stack trace, and a genuine webhook gets through."""
    good = signed(OLD, BODY)
    value = str(good["X-Webhook-Signature"])
    strange = signed(OLD, b'{"id": "evt-1"}')
    garbage: list[tuple[str, dict[str, str | bytes], bytes]] = [
        ("no headers", {"Content-Type": "application/json"}, BODY),
        ("no body", good, b""),
        ("another secret", signed("other", BODY), BODY),
        ("another body", good, BODY.replace(b"pay-evt-1", b"pay-evil!")),
        ("old", signed(OLD, BODY, age=301), BODY),
        ("from the future", signed(OLD, BODY, age=-400), BODY),
        ("non-ASCII signature", good | {"X-Webhook-Signature": "é".encode() * 64}, BODY),
        ("latin-1 signature", good | {"X-Webhook-Signature": b"\xff\xe9" * 32}, BODY),
        ("empty signature", good | {"X-Webhook-Signature": ""}, BODY),
        ("long signature", good | {"X-Webhook-Signature": "0" * 8000}, BODY),
        ("upper-case signature", good | {"X-Webhook-Signature": value.upper()}, BODY),
        ("two signatures", good | {"X-Webhook-Signature": f"{value}, {value}"}, BODY),
        ("timestamp of letters", good | {"X-Webhook-Timestamp": "abc"}, BODY),
        ("timestamp below zero", good | {"X-Webhook-Timestamp": "-5"}, BODY),
        ("endless timestamp", good | {"X-Webhook-Timestamp": "9" * 400}, BODY),
        ("non-ASCII timestamp", good | {"X-Webhook-Timestamp": "٣٣٣".encode()}, BODY),
        ("another id", good | {"X-Webhook-Id": "evt-2"}, BODY),
        ("not JSON", _signed_as_is(b"{nonsense"), b"{nonsense"),
        ("not an object", _signed_as_is(b"[1]"), b"[1]"),
        ("null", _signed_as_is(b"null"), b"null"),
        ("not UTF-8", _signed_as_is(b"\xff\xfe"), b"\xff\xfe"),
    ]
    with start(OLD) as receiver:
        answers = {name: receiver.post(headers, body) for name, headers, body in garbage}
        assert {name: status for name, status in answers.items() if status not in {400, 401}} == {}
        assert [answers[name] for name in ("another secret", "old", "non-ASCII signature")] == [401, 401, 401]
        assert receiver.handled == []
        assert "Traceback" not in receiver.says
        assert "    at " not in receiver.says
        assert receiver.post(strange, b'{"id": "evt-1"}') == 200
        assert receiver.post(good | {"X-Webhook-Id": "evt-1"}, BODY) == 200


def _signed_as_is(body: bytes) -> dict[str, str | bytes]:
    headers = signed(OLD, b'{"id": "evt-1"}')
    return headers | {"X-Webhook-Signature": sign(OLD, str(headers["X-Webhook-Timestamp"]), body)}


def test_a_body_as_large_as_may_come_is_taken(start: Start) -> None:
    """256 KiB is the largest body that is ever sent; more is refused."""
    body = json.dumps({"id": "evt-1", "padding": ""}).encode()
    largest = body.replace(b'""', b'"' + b"x" * (256 * 1024 - len(body)) + b'"')
    with start(OLD) as receiver:
        assert receiver.post(signed(OLD, largest), largest) == 200
        assert receiver.post(signed(OLD, largest), largest + b" ") == 413


def test_without_a_secret_it_does_not_start(start: Start) -> None:
    """A receiver that would answer 401 to everything says so in one line instead: each 401 costs a webhook."""
    with pytest.raises(AssertionError, match=r"\Aset WEBHOOK_SECRET: .*\n\Z"), start():
        pass


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="the lines need curl and openssl")
def test_the_lines_that_try_a_receiver_work_as_they_stand(start: Start) -> None:
    """What the merchants' pages tell to type is answered 200, and handled once; with another secret it is refused."""
    lines = blocks("merchants.md")["sh"]
    assert lines == blocks("merchants.ru.md")["sh"]
    (secret,) = re.findall(r"^SECRET='(.*)'$", lines, re.MULTILINE)
    with start(secret) as receiver:
        typed = lines.replace("http://127.0.0.1:8000/webhooks", receiver.url)
        answers = [_type(typed), _type(typed), _type(typed.replace(secret, "another"))]
        assert answers == ["200", "200", "401"]
        assert receiver.handled == ["pay_1"]


def _type(lines: str) -> str:
    typed = subprocess.run(["sh", "-euc", lines], capture_output=True, text=True, check=True)
    return typed.stdout.strip()
