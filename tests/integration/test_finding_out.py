"""What an operator finds out: was it sent, what comes next and why, how a merchant answers, which deliveries."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.command import done, refused, run
from tests.courier import accept, attempt, send
from tests.system import System
from webhooks import parts
from webhooks.gate.gate import Gate
from webhooks.model import Changes, HeldFor
from webhooks.policy.breaker import BreakerRules

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}
PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
MORE = Changes(url="https://more.example/hook", secret="a secret of the tests", types=("kyc.*",))
AWAY = "redis://127.0.0.1:1/0"


def lines(*typed: str) -> dict[str, str]:
    """Type a command, and return its lines by what they begin with."""
    told = run(*typed)
    assert told.exit_code == 0, told.output
    return {name.strip(): text.strip() for name, _, text in (line.partition("  ") for line in told.stdout.splitlines())}


def test_a_payment_is_found_by_what_support_has_in_hand(system: System) -> None:
    """Its id, the merchant's own number or the event's id: the commonest question is one command."""
    system.merchant("acme")
    send({**PAID, "id": "evt-1", "payment_id": "pay_123", "external_id": "order 7"})
    send({**PAID, "id": "evt-2", "payment_id": "pay_124", "external_id": "order 7"})
    assert [(each["id"], each["field"]) for each in done("delivery", "find", "pay_123")] == [("evt-1", "payment_id")]
    by_number = done("delivery", "find", "order 7")
    assert [(each["id"], each["field"], each["state"]) for each in by_number] == [
        ("evt-2", "external_id", "delivered"),
        ("evt-1", "external_id", "delivered"),
    ]
    assert [each["id"] for each in done("delivery", "find", "order 7", "--limit", "1")] == ["evt-2"]
    assert "payment_id" in run("delivery", "find", "pay_124").stdout
    assert run("delivery", "find", "pay_999").stdout.startswith("0 deliveries of events with pay_999")


def test_what_comes_next_is_told_with_when_and_why(system: System) -> None:
    """Of what was delivered, has failed, waits for its time, is due or is held."""
    system.merchant("acme").answers(200, 404, 500)
    for number in range(3):
        send({**EVENT, "id": f"evt-{number}"})
    accept({**EVENT, "id": "due"})
    attempt(accept({**EVENT, "id": "lost", "merchant_id": "mistyped"}))
    told = {name: lines("delivery", "show", name) for name in ("evt-0", "evt-1", "evt-2", "due", "lost")}
    assert told["evt-0"]["next"] == "nothing; it was delivered"
    assert told["evt-1"]["next"] == "nothing; it failed: rejected; a replay would send it again"
    assert told["due"]["next"] == "attempt; attempt 1 is due, and waits for a worker"
    assert told["lost"]["next"] == "release; its merchant has no address"
    system.sql("UPDATE deliveries SET due_at = now() + interval '1 hour' WHERE id = 'evt-2'")
    later = lines("delivery", "show", "evt-2")["next"]
    assert later.startswith("attempt; ")
    assert " UTC, in 60 min: attempt 2 waits for its time" in later
    coming = done("delivery", "show", "evt-2")["next"]
    assert (coming["what"], coming["why"]) == ("attempt", "attempt 2 waits for its time")
    assert coming["at"].endswith("+00:00")


def test_what_a_breaker_holds_says_until_when(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the pause is the gate's; without the gate that is said, and all else is told."""
    system.merchant("acme").answer_with(lambda _: 500)
    for number in range(5):
        send({**EVENT, "id": f"evt-{number}"})
    attempt(accept({**EVENT, "id": "held"}))
    assert " UTC, in " in lines("delivery", "show", "held")["next"]
    assert lines("endpoint", "show", "acme")["breaker"].startswith("paused until 20")
    monkeypatch.setattr(parts.gate, "_made", [Gate(AWAY, BreakerRules())])
    assert lines("delivery", "show", "held")["next"].startswith("release; held for breaker; the gate's Redis")
    assert lines("endpoint", "show", "acme")["breaker"].startswith("the gate's Redis cannot be used")
    assert done("endpoint", "show", "acme")["breaker"] is None


def test_a_merchant_is_shown_with_how_it_answers(system: System) -> None:
    """Its share of 2xx, how long answers take, what it holds and what failed, and its last answers."""
    system.merchant("acme").answers(200, 404, 200, 200)
    for number in range(4):
        send({**EVENT, "id": f"evt-{number}"})
    parts.ledger().hold(accept({**EVENT, "id": "held"}), HeldFor.LANE)
    for noun in ("merchant", "endpoint"):
        told = lines(noun, "show", "acme")
        assert told["last hour"].startswith("4 attempts, 75 % answered 2xx, half of the answers within ")
        assert (told["held"], told["failed"]) == ("1 for lane", "1 for rejected")
        assert told["breaker"] == "working"
        assert "the last 4 attempts" in run(noun, "show", "acme").stdout
        shown = done(noun, "show", "acme")
        hour = shown["last_hour"]
        assert (hour["attempts"], hour["delivered"], hour["share"]) == (4, 3, 0.75)
        assert [made["status"] for made in shown["last_answers"]] == [200, 200, 404, 200]
        assert shown["breaker"]["state"] == "working"


def test_a_merchants_endpoints_are_shown_each_for_itself(system: System) -> None:
    """Whoever has several sees which of them is in trouble."""
    system.merchant("acme")
    parts.endpoints().set("acme", Changes(url="https://acme.example/", secret="s"))
    parts.endpoints().add("acme", "ep_more", MORE)
    shown = done("merchant", "show", "acme")
    assert [each["id"] for each in shown["of_endpoints"]] == ["acme", "ep_more"]
    assert "2 endpoints" in run("merchant", "show", "acme").stdout


CHOSEN = [
    (["--endpoint", "acme"], ["evt-3", "evt-2", "evt-1", "evt-0"]),
    (["--merchant", "mistyped"], ["lost"]),
    (["--held-for", "address"], ["lost"]),
    (["--state", "failed"], ["evt-1"]),
    (["--reason", "rejected"], ["evt-1"]),
    (["--type", "payment.status_changed"], ["evt-3"]),
    (["--money"], ["evt-3"]),
    (["--no-money", "--answer", "200"], ["evt-0"]),
    (["--answer", "500"], ["evt-2"]),
    (["--until", "1h"], []),
    (["--merchant", "acme", "--after", "evt-2"], ["evt-1", "evt-0"]),
]


def test_deliveries_are_chosen_by_what_is_known_of_them(system: System) -> None:
    """Whose, where they stand and why, what they were, how they were answered last, and when."""
    system.merchant("acme").answers(200, 404, 500, 200)
    for number in range(3):
        send({**EVENT, "id": f"evt-{number}"})
    send({**PAID, "id": "evt-3"})
    attempt(accept({**EVENT, "id": "lost", "merchant_id": "mistyped"}))
    for options, found in CHOSEN:
        assert [each["id"] for each in done("delivery", "list", *options)] == found, options


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--held-for", "nothing"], "address, breaker, lane, rate, operator, replay"),
        (["--state", "lost"], "pending, held, delivered, failed"),
        (["--answer", "7"], "100<=x<=599"),
    ],
)
def test_a_word_that_there_is_not_is_refused_with_those_that_there_are(options: Sequence[str], names: str) -> None:
    """A mistyped option is a usage error: 2."""
    told = run("delivery", "list", *options)
    assert (told.exit_code, told.stdout) == (2, "")
    assert names in told.stderr


def test_a_cursor_that_is_no_delivery_is_refused(system: System) -> None:
    """In one line."""
    assert "no delivery nothing" in refused("delivery", "list", "--after", "nothing")


def test_what_is_sent_again_is_chosen_by_the_same(system: System) -> None:
    """By the last answer, the endpoint and whether it is money: nothing else is sent again, and the audit says so."""
    system.merchant("acme").answers(404, 403, 404)
    for delivery_id in ("evt-0", "evt-1"):
        send({**EVENT, "id": delivery_id})
    chosen = ("--endpoint", "acme", "--answer", "404", "--no-money")
    assert done("delivery", "replay", *chosen, "--dry-run")["matching"] == 1
    assert done("delivery", "replay", *chosen, "--why", "route fixed")["replayed"] == 1
    assert [each["id"] for each in done("delivery", "list", "--state", "failed")] == ["evt-1"]
    assert "answer 404" in parts.audit().latest(1).items[0].what
