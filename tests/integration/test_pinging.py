"""`webhooks endpoint ping`: a signed test event, sent now and by hand."""

from __future__ import annotations

import json

from tests.command import done, refused, run
from tests.merchant import Reply, Request
from tests.system import SECRET, System
from webhooks import parts, signing
from webhooks.model import Changes, Operator
from webhooks.operating import endpoints
from webhooks.wire.deadline import Phase

BY = Operator("anna")


def is_signed(request: Request, secret: str) -> bool:
    """Check as a merchant does."""
    timestamp, signature = request.header("X-Webhook-Timestamp"), request.header("X-Webhook-Signature")
    return signing.verify(secret, timestamp=timestamp, signature=signature, body=request.body)


def test_a_ping_is_signed_as_any_webhook(system: System) -> None:
    """It has a fresh id each time, its own type, and the endpoint's own headers; all phases and a 2xx are told."""
    acme = system.merchant("acme")
    parts.endpoints().change("acme", Changes(headers={"X-Shop": "main"}, standard_headers=True))
    told = done("endpoint", "ping", "acme")
    assert (told["fine"], told["status"], told["addresses"]) == (True, 200, ["127.0.0.1"])
    assert list(told["phases"]) == list(Phase)
    assert all(seconds > 0 for seconds in told["phases"].values())
    shown = run("endpoint", "ping", "acme")
    assert shown.exit_code == 0
    assert "fine: all is well: it answered 200\n" in shown.stdout
    first, second = acme.requests
    assert first.webhook_id == told["event_id"] != second.webhook_id
    assert json.loads(first.body) == {"id": told["event_id"], "type": "webhooks.ping", "merchant_id": "acme"}
    assert is_signed(first, SECRET)
    assert (first.header("X-Shop"), first.header("webhook-id")) == ("main", told["event_id"])


def test_a_ping_is_no_delivery(system: System) -> None:
    """Nothing of it is in the ledger but a line of the audit, and however often it fails no breaker hears of it."""
    system.merchant("acme").answers(503)
    pinged = [json.loads(run("endpoint", "ping", "acme", "--why", "they asked", "--json").stdout) for _ in range(6)]
    assert system.counted() == {}
    assert system.sql("SELECT id FROM events") == []
    assert parts.gate().show("acme").state == "working"
    assert [(line["what"], line["why"], line["deliveries"]) for line in reversed(done("audit"))] == [
        (f"ping of acme, {told['event_id']}", "they asked", None) for told in pinged
    ]


def test_what_is_in_the_way_is_told_and_the_exit_status_is_1(system: System) -> None:
    """With the beginning of the answer, on one line; nothing is told of path, query, secret and headers."""
    merchant = system.merchant("acme")
    merchant.answers(Reply(422, body=b"first line\nsecond" + b"x" * 3000))
    parts.endpoints().change("acme", Changes(url=merchant.url("/hook?key=canary"), headers={"X-Key": "canary"}))
    result = run("endpoint", "ping", "acme")
    assert result.exit_code == 1
    assert "NOT FINE: it answered 422: it does not accept the request\n" in result.stdout
    (excerpt,) = [line for line in result.stdout.splitlines() if "first line" in line]
    assert excerpt.startswith("its answer begins: first line secondxxx")
    assert len(excerpt) < 250
    as_json = run("endpoint", "ping", "acme", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["fine"] is False
    assert "canary" not in result.output + as_json.output
    assert SECRET not in result.output + as_json.output


def test_neither_a_breaker_nor_a_pause_keeps_a_ping(system: System) -> None:
    """It is how one finds out whether they may end; it leaves them as they are."""
    system.merchant("acme")
    endpoints.pause(BY, "acme", paused=True)
    assert done("endpoint", "ping", "acme")["fine"]
    assert parts.endpoints().get("acme").paused_at is not None


def test_one_of_several_endpoints_is_pinged(system: System) -> None:
    """By its own id, with its own secret."""
    backup = system.merchant("acme", registered=False)
    endpoints.add(BY, "acme", "ep_backup", Changes(url=backup.url(), secret="of the backup"))
    assert done("endpoint", "ping", "ep_backup")["merchant_id"] == "acme"
    (request,) = backup.requests
    assert is_signed(request, "of the backup")


def test_what_cannot_be_pinged_is_refused(system: System) -> None:
    """An endpoint that is not there, or has no address; nothing is sent, and the audit has no line."""
    parts.endpoints().set("bare", Changes(secret=SECRET))
    assert refused("endpoint", "ping", "ep_none") == "webhooks: no endpoint ep_none; see: webhooks endpoint list"
    assert refused("endpoint", "ping", "bare") == "webhooks: bare has no address: there is nowhere to send to"
    assert done("audit") == []


def test_nothing_is_sent_without_its_line_in_the_audit(system: System) -> None:
    """A ledger that takes no writes is a fault, and the merchant sees nothing."""
    acme = system.merchant("acme")
    with system.taking_no_writes():
        assert refused("endpoint", "ping", "acme").startswith("webhooks: ")
    assert acme.requests == []
