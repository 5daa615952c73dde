"""`webhooks event show|replay`: what was handed over, what became of it at each endpoint, and all of it once more."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest

from tests.command import done, refused, run
from tests.courier import send
from tests.system import SECRET, System
from webhooks import deliver, parts
from webhooks.ledger.views import Wanted
from webhooks.model import Changes, HeldFor, Reason, State

PAID = {"id": "pay-1", "type": "payment.status_changed", "status": "paid", "merchant_id": "acme", "amount": "12.50"}
URL = "https://acme.example/hook"


def add(endpoint_id: str, *types: str, merchant_id: str = "acme") -> None:
    """Add an endpoint that wants these types, or all."""
    parts.endpoints().add(merchant_id, endpoint_id, Changes(url=URL, secret=SECRET, types=types or None))


def end(system: System) -> None:
    """End everything as failed."""
    system.sql(
        "UPDATE deliveries SET state = 'failed', reason = 'rejected', held_for = NULL, sweep_at = NULL,"
        " finished_at = now() WHERE state IN ('pending', 'held')"
    )


@pytest.mark.usefixtures("system")
def test_an_event_is_shown_with_its_deliveries() -> None:
    """Its facts without its body, and a line for each endpoint that wanted it; the body on request, byte for byte."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    add("ep_books", "payment.*")
    add("ep_kyc", "kyc.status_changed")
    deliver.delay(PAID)
    body = parts.views().body("pay-1")
    assert body
    shown = done("event", "show", "pay-1")
    assert {name: shown[name] for name in ("id", "merchant_id", "type", "money", "body_sha256", "body_bytes")} == {
        "id": "pay-1",
        "merchant_id": "acme",
        "type": "payment.status_changed",
        "money": True,
        "body_sha256": hashlib.sha256(body).hexdigest(),
        "body_bytes": len(body),
    }
    assert [(way["id"], way["endpoint_id"], way["state"]) for way in shown["deliveries"]] == [
        ("pay-1", "acme", "pending"),
        ("pay-1~ep_books", "ep_books", "pending"),
    ]
    assert run("event", "show", "pay-1", "--body").stdout_bytes == body
    assert "12.50" not in run("event", "show", "pay-1").output + str(shown)


@pytest.mark.usefixtures("system")
def test_an_event_that_nobody_wanted_says_so() -> None:
    """It was accepted and ended at once; one that came before any endpoint waits for an address, and is another."""
    deliver.delay({**PAID, "id": "early"})
    add("ep_kyc", "kyc.status_changed")
    deliver.delay(PAID)
    shown = run("event", "show", "pay-1").stdout
    assert "no endpoint of acme wanted it" in shown
    assert "0 deliveries" in shown
    assert done("event", "show", "pay-1")["unmatched"] is True
    (early,) = done("event", "show", "early")["deliveries"]
    assert (early["id"], early["endpoint_id"]) == ("early", "acme")
    assert "no endpoint" not in run("event", "show", "early").stdout


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("word", ["show", "replay"])
def test_an_event_that_there_is_not_is_one_line(word: str) -> None:
    """A delivery's id is told apart."""
    why = ("--why", "x") if word == "replay" else ()
    assert refused("event", word, "nosuch", *why) == "webhooks: no event nosuch was accepted"
    assert refused("event", word, "pay-1~ep_books", *why).endswith("that is a delivery, of event pay-1")
    assert done("audit") == []


def test_an_event_is_replayed_to_all_of_its_endpoints(system: System) -> None:
    """What has ended goes again, who wants it by now gets it for the first time, what is unfinished is left alone."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    for endpoint_id in ("ep_books", "ep_gone", "ep_stopped"):
        add(endpoint_id)
    deliver.delay(PAID)
    end(system)
    system.sql("UPDATE deliveries SET reason = 'cancelled' WHERE endpoint_id = 'ep_stopped'")
    system.sql("UPDATE deliveries SET state = 'delivered', reason = NULL WHERE endpoint_id = 'acme'")
    run("endpoint", "remove", "ep_gone", "--yes")
    add("ep_late", "payment.*")
    add("ep_kyc", "kyc.status_changed")
    came = done("event", "replay", "pay-1", "--why", "they lost their books")
    assert [verdict["delivery_id"] for verdict in came["resent"]] == ["pay-1", "pay-1~ep_books"]
    assert came["begun"] == ["pay-1~ep_late"]
    assert {verdict["delivery_id"]: verdict["refused"] for verdict in came["left"]} == {
        "pay-1~ep_gone": "its endpoint was removed",
        "pay-1~ep_stopped": "an operator cancelled it; add --cancelled to send it all the same",
    }
    going = parts.views().deliveries(Wanted(state=State.HELD), 10).items
    assert {way.endpoint_id for way in going} == {"acme", "ep_books", "ep_late"}
    assert {way.held_for for way in going} == {HeldFor.REPLAY}
    line = parts.audit().latest(1).items[0]
    assert line.what == "replay of event pay-1: pay-1, pay-1~ep_books, pay-1~ep_late"
    assert (line.why, line.deliveries) == ("they lost their books", 3)
    again = run("event", "replay", "pay-1", "--why", "x")
    assert (again.exit_code, "will be sent anyway" in again.stderr) == (1, True)
    assert len(done("audit")) == 2


def test_an_event_that_nobody_wanted_is_replayed_once_somebody_does(system: System) -> None:
    """It is unmatched no more, and its delivery goes out."""
    add("ep_kyc", "kyc.status_changed")
    deliver.delay(PAID)
    assert refused("event", "replay", "pay-1", "--why", "x") == "webhooks: nothing of pay-1 is sent again"
    merchant = system.merchant("acme")
    assert run("event", "replay", "pay-1", "--why", "x").stdout == "pay-1: is being sent, for the first time\n"
    assert done("event", "show", "pay-1")["unmatched"] is False
    (released,) = parts.backlog().release({"acme": 1})["acme"]
    parts.courier().attempt(released)
    (request,) = merchant.requests
    assert (request.webhook_id, request.body) == ("pay-1", parts.views().body("pay-1"))


@pytest.mark.usefixtures("system")
def test_an_event_is_replayed_to_one_endpoint() -> None:
    """To one that wants it by now, or had it; the others are left as they are. For one that does neither, all is."""
    add("ep_kyc", "kyc.status_changed")
    deliver.delay(PAID)
    add("ep_books")
    add("ep_late", "payment.*")
    told = refused("event", "replay", "pay-1", "--endpoint", "ep_kyc", "--why", "x")
    assert told == "webhooks: ep_kyc has not had pay-1, and does not want it either"
    assert done("event", "show", "pay-1")["unmatched"] is True
    came = done("event", "replay", "pay-1", "--endpoint", "ep_books", "--why", "x")
    assert (came["resent"], came["begun"], came["left"]) == ([], ["pay-1~ep_books"], [])
    (way,) = done("event", "show", "pay-1")["deliveries"]
    assert (way["endpoint_id"], way["held_for"]) == ("ep_books", "replay")


def test_what_was_cancelled_of_an_event_is_sent_again_when_that_is_said(system: System) -> None:
    """As the answer without it says."""
    for endpoint_id in ("ep_books", "ep_late"):
        add(endpoint_id)
    deliver.delay(PAID)
    end(system)
    system.sql("UPDATE deliveries SET reason = 'cancelled'")
    said = ("--endpoint", "ep_books", "--why", "x")
    assert "add --cancelled" in run("event", "replay", "pay-1", *said).stderr
    came = done("event", "replay", "pay-1", *said, "--cancelled")
    assert [verdict["delivery_id"] for verdict in came["resent"]] == ["pay-1~ep_books"]
    assert system.counted() == {State.HELD: 1, State.FAILED: 1}


def test_an_event_without_its_body_is_not_sent_again(system: System) -> None:
    """One line says why, also for the body itself."""
    system.merchant("acme").answers(404)
    send({**PAID, "type": "kyc.status_changed"})
    system.sql("UPDATE deliveries SET finished_at = now() - interval '1 year'")
    while parts.pruning().prune():
        pass
    assert refused("event", "replay", "pay-1", "--why", "x").startswith("webhooks: the body of pay-1 has been pruned")
    assert refused("event", "show", "pay-1", "--body") == "webhooks: the body of pay-1 has been pruned"
    assert "pruned" in run("event", "show", "pay-1").stdout


def test_deliveries_are_listed_page_by_page(system: System) -> None:
    """Each once and in order, also where several were accepted at the same moment and others come meanwhile."""
    for number in range(7):
        deliver.delay({**PAID, "id": f"evt-{number}"})
    system.sql("UPDATE deliveries SET accepted_at = now() - interval '1 hour' WHERE id <> 'evt-6'")
    seen: list[str] = []
    after = None
    for _ in range(3):
        page = parts.views().deliveries(Wanted(merchant_id="acme"), 3, after)
        seen += [way.id for way in page.items]
        after = page.next
        deliver.delay({**PAID, "id": f"later-{after}"})
    assert (seen, after) == (["evt-6", *(f"evt-{number}" for number in range(6))], None)
    assert [way["id"] for way in done("delivery", "list", "--after", "evt-3", "--limit", "2")] == ["evt-4", "evt-5"]
    assert "the next ones: --after evt-3" in run("delivery", "list", "--after", "evt-1", "--limit", "2").stdout
    assert "no delivery nosuch" in refused("delivery", "list", "--after", "nosuch")


@pytest.mark.usefixtures("system")
def test_the_audit_is_listed_page_by_page() -> None:
    """Behind a line, with the same order."""
    for number in range(5):
        parts.endpoints().set(f"shop-{number}", Changes(url=URL, secret=SECRET))
        run("merchant", "pause", f"shop-{number}")
    first = done("audit", "--limit", "2")
    assert [line["what"] for line in first] == ["paused shop-4", "paused shop-3"]
    rest = done("audit", "--after", str(first[-1]["id"]))
    assert [line["what"] for line in rest] == ["paused shop-2", "paused shop-1", "paused shop-0"]
    assert f"--after {first[-1]['id']}" in run("audit", "--limit", "2").stdout


def test_reasons_and_states_are_our_own_words(system: System) -> None:
    """What is read has the types that the code works with."""
    system.merchant("acme").answers(404)
    send({**PAID, "type": "kyc.status_changed"})
    found = parts.views().delivery("pay-1")
    assert (found.delivery.state, found.delivery.reason) == (State.FAILED, Reason.REJECTED)
    assert type(found.delivery.reason) is Reason
    assert found.delivery.expires_at - found.delivery.accepted_at == timedelta(days=30)
