"""Where an event goes: to each endpoint of its merchant that wants its type, said once, when it is accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg2
import pytest
from sqlalchemy import create_engine, make_url

from tests.command import done
from tests.courier import accept_all, attempt, take
from tests.integration.test_many import queue
from tests.integration.test_round_trips import counting
from tests.system import SECRET, System
from webhooks import EventConflict, deliver, parts, record, record_many
from webhooks.delivery import SetAside
from webhooks.errors import AnswerLost
from webhooks.ledger.database import Database
from webhooks.model import Changes, HeldFor, State
from webhooks.policy.decisions import Delivered

URL = "https://acme.example/hook"
PAID: dict[str, Any] = {"id": "evt-1", "type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
ALL_THREE = ["evt-1", "evt-1~ep_named", "evt-1~ep_star"]


def add(endpoint_id: str, types: Sequence[str] | None = None, **more: Any) -> None:
    """Have one more endpoint of a merchant; `acme` is its default one."""
    changes = Changes(url=URL, secret=SECRET, types=tuple(types) if types else None, **more)
    if endpoint_id == "acme":
        parts.endpoints().set("acme", changes)
    else:
        parts.endpoints().add("acme", endpoint_id, changes)


def wanted_by(event_type: str) -> list[str]:
    """Accept an event of a type, and return the endpoints that get it."""
    return sorted(accept_all({"type": event_type, "merchant_id": "acme"}))


def recorded(system: System) -> list[str]:
    """Return the ids of all deliveries."""
    return [row.id for row in system.sql('SELECT id FROM deliveries ORDER BY id COLLATE "C"')]


MATCHING = [
    (["payment.paid"], ["payment.paid"], ["payment", "payment.paid.x", "payment.pai", "Payment.paid", "xpayment.paid"]),
    (["payment.*"], ["payment.paid", "payment.a.b", "payment.x"], ["payment", "payments.x", "refund.x", "a.payment.x"]),
    (["payment.card.*"], ["payment.card.x"], ["payment.x", "payment.cards.x", "payment.card"]),
    (["payment", "refund.*"], ["payment", "refund.completed"], ["payment.paid", "refund", "kyc.x"]),
    (["a_b.%"], ["a_b.%"], ["aXb.x", "a_b.x"]),
    (["a_b.*"], ["a_b.x"], ["aXb.x", "a%b.x"]),
    (["Платёж.*"], ["Платёж.проведён"], ["платёж.проведён", "Платёж"]),
    (None, ["payment.paid", "anything at all"], []),
]


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(("types", "yes", "no"), MATCHING, ids=lambda value: ",".join(value) if value else "all")
def test_a_filter_matches_types_and_all_under_a_name(
    types: list[str] | None, yes: Sequence[str], no: Sequence[str]
) -> None:
    """Letter by letter: no other sign than the star at the end stands for anything."""
    add("ep_x", types)
    add("ep_other", ["other.*"])
    assert [wanted_by(each) for each in yes] == [["ep_x"]] * len(yes)
    assert [wanted_by(each) for each in no] == [[]] * len(no)


def test_an_event_that_nobody_wants_is_accepted_and_goes_nowhere(system: System) -> None:
    """It is known for ever, by its id and its bytes, and has neither a delivery nor a message."""
    add("acme", ["kyc.*"])
    add("ep_x", ["refund.completed"])
    assert deliver.delay(PAID).id == "evt-1"
    assert (recorded(system), queue(system)) == ([], [])
    (event,) = system.sql("SELECT id, unmatched FROM events")
    assert event.unmatched is True
    add("ep_all")
    assert deliver.delay(PAID).id == "evt-1"
    assert (recorded(system), queue(system)) == ([], [])
    with pytest.raises(EventConflict, match="evt-1 was accepted before with another body"):
        deliver.delay({**PAID, "status": "settled"})
    deliver.delay({**PAID, "id": "evt-2"})
    assert recorded(system) == ["evt-2~ep_all"]
    assert [row.unmatched for row in system.sql("SELECT unmatched FROM events ORDER BY id")] == [True, False]


def test_a_merchant_without_any_endpoint_has_it_held_for_an_address(system: System) -> None:
    """It goes to the default endpoint once there is one, whatever others have been added meanwhile."""
    (message,) = accept_all(PAID).values()
    assert message.endpoint_id == "acme"
    assert attempt(message) == SetAside(HeldFor.ADDRESS)
    add("ep_x")
    assert parts.sweeper().tick().released == 0
    assert done("merchant", "show", "acme")["held"] == {"address": 1}
    assert done("breaker", "show", "acme")["held"] == 1
    merchant = system.merchant("acme", registered=False)
    done("merchant", "set", "acme", "--url", merchant.url(), "--secret", SECRET)
    assert parts.sweeper().tick().released == 1
    released = take(system.redis())
    assert released
    assert attempt(released) == Delivered()
    assert [request.webhook_id for request in merchant.requests] == ["evt-1"]


def test_a_merchant_with_named_endpoints_only_has_nothing_under_its_own_id(system: System) -> None:
    """Neither what they want nor what they do not."""
    add("ep_x", ["payment.*"])
    deliver.delay(PAID)
    deliver.delay({**PAID, "id": "evt-2", "type": "kyc.status_changed"})
    assert recorded(system) == queue(system) == ["evt-1~ep_x"]


def test_what_is_accepted_goes_where_it_was_to_go_then(system: System) -> None:
    """An endpoint that comes later gets nothing of it, and a filter that changes later takes nothing away."""
    merchant = system.merchant("acme")
    message = accept_all(PAID)["acme"]
    add("ep_late")
    done("endpoint", "set", "acme", "--type", "kyc.*")
    assert attempt(message) == Delivered()
    assert recorded(system) == ["evt-1"]
    assert len(merchant.requests) == 1
    assert list(accept_all({**PAID, "id": "evt-2"})) == ["ep_late"]


@pytest.fixture
def three(system: System) -> System:
    """A merchant with three endpoints that want payments, one that does not, and one that was removed."""
    add("acme")
    add("ep_star", ["payment.*"], lane=1)
    add("ep_named", ["payment.status_changed"])
    add("ep_other", ["kyc.*"])
    add("ep_gone")
    parts.endpoints().remove("ep_gone")
    return system


def by_delay(_url: str, event: dict[str, Any]) -> None:
    """Accept an event as most producers do."""
    deliver.delay(event)


def by_many(_url: str, event: dict[str, Any]) -> None:
    """Accept it among others."""
    deliver.many([event, {**event, "id": "evt-2", "type": "kyc.x"}])


def by_name(_url: str, event: dict[str, Any]) -> None:
    """Accept it as a worker does that gets it complete."""
    parts.accepting().accept_by_name(event, "evt-1")


def by_record(url: str, event: dict[str, Any]) -> None:
    """Record it in a transaction of psycopg's."""
    plain = psycopg2.connect(url)
    record(plain, event)
    plain.commit()
    plain.close()


def by_record_many(url: str, event: dict[str, Any]) -> None:
    """Record it among others, in a transaction of SQLAlchemy's."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        record_many(connection, [{**event, "id": "evt-0", "type": "kyc.x"}, event])
    engine.dispose()


@pytest.mark.parametrize("way", [by_delay, by_many, by_name, by_record, by_record_many])
def test_whichever_way_it_is_accepted_each_delivery_has_its_message(
    three: System, database_url: str, way: Callable[[str, dict[str, Any]], None]
) -> None:
    """At once, or by the sweep where a transaction of the producer's had to end first; and each only once."""
    for _ in range(2):
        way(database_url, PAID)
    parts.sweeper().tick()
    assert [each for each in sorted(queue(three)) if each.startswith("evt-1")] == ALL_THREE
    assert [each for each in recorded(three) if each.startswith("evt-1")] == ALL_THREE
    redis = three.redis()
    lanes = {message.endpoint_id: message.limits.lane for message in iter(lambda: take(redis), None)}
    assert lanes == {**lanes, "acme": None, "ep_star": 1, "ep_named": None}


def test_several_endpoints_cost_no_more_statements(three: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement for one event, one transaction for a hundred; one push, and a message for each delivery."""
    deliver.delay({**PAID, "id": "warm"})
    with counting(three, monkeypatch) as counted:
        deliver.delay(PAID)
    assert (counted.statements, counted.transactions, counted.commands["lpush"]) == (1, 0, 1)
    three.sql("UPDATE endpoints SET lane = 100")
    many = [{**PAID, "id": f"many-{number:03}"} for number in range(100)]
    with counting(three, monkeypatch) as counted:
        deliver.many(many)
    assert (counted.statements, counted.transactions, counted.commands["lpush"]) == (0, 1, 1)
    ids = [each.partition("~")[0] for each in queue(three)[6:]]
    assert ids == [event["id"] for event in many for _ in range(3)]


@pytest.mark.parametrize("attempted", ["acme", "ep_star"])
def test_an_attempt_costs_the_same_at_every_endpoint(
    system: System, monkeypatch: pytest.MonkeyPatch, attempted: str
) -> None:
    """Claim and finish in PostgreSQL, admit and report in Redis."""
    merchant = system.merchant("acme")
    parts.endpoints().add("acme", "ep_star", Changes(url=merchant.url(), secret=SECRET, lane=2, headers={"X-A": "1"}))
    assert attempt(accept_all({**PAID, "id": "warm"})[attempted]) == Delivered()
    message = accept_all(PAID)[attempted]
    with counting(system, monkeypatch) as counted:
        assert attempt(message) == Delivered()
    assert (counted.statements, counted.commands.get("evalsha")) == (2, 2)
    assert "lpush" not in counted.commands


def test_a_conflict_takes_back_all_deliveries(three: System, database_url: str) -> None:
    """Of every endpoint; what the transaction holds besides stays."""
    deliver.delay({**PAID, "id": "evt-9"})
    plain = psycopg2.connect(database_url)
    record(plain, {**PAID, "id": "evt-0"})
    with pytest.raises(EventConflict, match=r"^event 1: id: evt-9: accepted before with another body; none is"):
        record_many(plain, [PAID, {**PAID, "id": "evt-9", "status": "settled"}, {**PAID, "id": "evt-2"}])
    plain.commit()
    plain.close()
    assert {each.partition("~")[0] for each in recorded(three)} == {"evt-0", "evt-9"}
    with pytest.raises(EventConflict):
        deliver.many([PAID, {**PAID, "id": "evt-9", "status": "settled"}])
    assert len(recorded(three)) == 6
    assert {row.id for row in three.sql("SELECT id FROM events")} == {"evt-0", "evt-9"}


def test_a_lost_answer_loses_no_delivery_its_message(three: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event was accepted, nobody heard it: asked again, the ledger names the delivery at each endpoint."""
    run = Database.rows
    lost = iter([True])

    def losing(self: Database, statement: Any, values: Mapping[str, Any] | None = None, **how: Any) -> Any:
        found = run(self, statement, values, **how)
        if "webhooks_accept_event" in str(statement) and next(lost, False):
            raise AnswerLost("the ledger cannot be used: gone")
        return found

    monkeypatch.setattr(Database, "rows", losing)
    deliver.delay(PAID)
    assert next(lost, None) is None
    assert sorted(queue(three)) == ALL_THREE
    assert three.counted() == {State.PENDING: 3}
