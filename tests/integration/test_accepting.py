"""Accepting events: recorded before anything else, idempotent, and clear when refused."""

from __future__ import annotations

import psycopg2
import pytest
from psycopg2.extras import RealDictCursor
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.system import SECRET, System
from webhooks import app, deliver, parts, record
from webhooks.errors import EventConflict, InvalidEvent, LedgerUnavailable, NotPossible
from webhooks.model import State
from webhooks.signing import verify

EVENT = {"id": "evt-1", "type": "payment.status_changed", "status": "paid", "merchant_id": "acme", "amount": "10.50"}


def test_event_reaches_its_merchant_signed(system: System) -> None:
    """The merchant gets the accepted bytes, an id, and a signature that it can verify."""
    merchant = system.merchant("acme")
    system.start()
    assert deliver.delay(EVENT).id == "evt-1"
    system.wait_for_state(State.DELIVERED, "evt-1")
    (request,) = merchant.requests
    assert request.body == (
        b'{"id":"evt-1","type":"payment.status_changed","status":"paid","merchant_id":"acme","amount":"10.50"}'
    )
    assert request.header("Content-Type") == "application/json"
    assert request.header("X-Webhook-Id") == "evt-1"
    assert request.header("X-Webhook-Attempt") == "1"
    assert verify(
        SECRET,
        timestamp=request.header("X-Webhook-Timestamp"),
        signature=request.header("X-Webhook-Signature"),
        body=request.body,
    )


def test_recorded_before_published(system: System) -> None:
    """When `delay` returns, the event is in the ledger and a message that names it is on the broker."""
    deliver.delay(EVENT)
    assert system.delivery("evt-1")["state"] == State.PENDING
    assert system.redis().llen("deliveries") == 1


def test_same_event_again_changes_nothing(system: System) -> None:
    """The same id with the same body is accepted, and nothing new is sent."""
    assert deliver.delay(EVENT).id == deliver.delay(dict(EVENT)).id
    assert system.redis().llen("deliveries") == 1


def test_same_id_with_another_body_is_refused(system: System) -> None:
    """Another body under the same id is refused, and the first one stays."""
    deliver.delay(EVENT)
    with pytest.raises(EventConflict, match="evt-1"):
        deliver.delay({**EVENT, "amount": "99.00"})
    assert system.redis().llen("deliveries") == 1


@pytest.mark.parametrize("arguments", [(), (EVENT, EVENT), ("text",), ({"type": "a"},)], ids=repr)
def test_refused_events_leave_nothing(system: System, arguments: tuple[object, ...]) -> None:
    """A refused event is neither recorded nor published."""
    with pytest.raises(InvalidEvent):
        deliver.delay(*arguments)
    assert system.counted() == {}
    assert system.redis().llen("deliveries") == 0


def test_options_that_would_break_a_promise_are_refused(system: System) -> None:
    """`expires` would lose the event and another task id would hide it: both are refused by name."""
    with pytest.raises(NotPossible, match="expires"):
        deliver.apply_async((EVENT,), expires=10)
    with pytest.raises(NotPossible, match="task_id"):
        deliver.apply_async((EVENT,), task_id="another")
    assert system.counted() == {}


def test_countdown_delays_the_first_attempt(system: System) -> None:
    """`countdown` sets the due time, and one past the horizon leaves no message."""
    deliver.apply_async((EVENT,), countdown=3600)
    (row,) = system.sql("SELECT due_at - accepted_at AS wait, sweep_at = due_at AS swept FROM deliveries")
    assert row.wait.total_seconds() == pytest.approx(3600, abs=1)
    assert row.swept
    assert system.redis().llen("deliveries") == 0


def test_ledger_down_means_not_accepted(system: System) -> None:
    """Without the ledger `delay` fails with one clear error, and publishes nothing."""
    system.set(database_url="postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(LedgerUnavailable, match=r"the ledger cannot be used: .*refused") as refusal:
        deliver.delay(EVENT)
    assert "\n" not in str(refusal.value)
    assert system.redis().llen("deliveries") == 0


def test_no_tables_yet_says_what_to_do(system: System) -> None:
    """An empty database is named as such, with the command that helps."""
    system.sql("DROP TABLE attempts, deliveries, endpoints, events CASCADE")
    with pytest.raises(LedgerUnavailable, match="webhooks db upgrade"):
        deliver.delay(EVENT)


def test_recorded_in_the_callers_transaction(system: System, database_url: str) -> None:
    """`record` counts if the caller commits, for SQLAlchemy and DB-API connections, and leaves no message."""
    engine = create_engine(make_url(database_url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        assert record(connection, {**EVENT, "id": "core"}) == "core"
    with Session(engine) as session:
        record(session, {**EVENT, "id": "orm"})
        session.commit()
    scoped = scoped_session(sessionmaker(engine))
    record(scoped, {**EVENT, "id": "scoped"})
    scoped.commit()
    scoped.remove()
    plain = psycopg2.connect(database_url)
    record(plain, {**EVENT, "id": "plain"})
    plain.commit()
    record(plain, {**EVENT, "id": "rolled-back"})
    plain.rollback()
    plain.close()
    engine.dispose()
    recorded = {row.id for row in system.sql("SELECT id FROM deliveries WHERE sweep_at <= now() AND queued_at IS NULL")}
    assert recorded == {"core", "orm", "scoped", "plain"}
    assert system.redis().llen("deliveries") == 0


def test_conflict_inside_a_transaction_leaves_it_usable(system: System, database_url: str) -> None:
    """A refused event doesn't abort what else the caller's transaction holds."""
    deliver.delay(EVENT)
    plain = psycopg2.connect(database_url, cursor_factory=RealDictCursor)  # rows by name are rows too
    with pytest.raises(EventConflict):
        record(plain, {**EVENT, "amount": "1"})
    record(plain, EVENT)  # the same body is no conflict
    record(plain, {**EVENT, "id": "evt-2"})
    plain.commit()
    plain.close()
    assert system.counted() == {State.PENDING: 2}


def test_by_name_while_the_ledger_is_away(system: System) -> None:
    """The message is the event's only copy then: it is put back, and recorded once the ledger is there."""
    merchant = system.merchant("acme")
    worker = system.start("--loglevel", "DEBUG")
    with system.ledger_away():
        app.send_task("webhooks.deliver", args=[EVENT])
        system.wait_until(lambda: "waits for the ledger" in worker.log.read_text(), "the worker could not record it")
    merchant.wait_for(1, timeout=30)
    system.wait_for_state(State.DELIVERED, "evt-1")
    assert "Traceback" not in worker.log.read_text()


def test_broker_down_is_made_up_for(system: System) -> None:
    """With the broker away 50 events are accepted; once it is back each is delivered exactly once."""
    merchant = system.merchant("acme")
    system.servers.redis.stop()
    ids = [deliver.delay({**EVENT, "id": f"evt-{number}"}).id for number in range(50)]
    assert system.counted() == {State.PENDING: 50}
    system.servers.redis.start()
    system.start()
    system.wait_for_count(State.DELIVERED, 50)
    assert sorted(str(request.webhook_id) for request in merchant.requests) == sorted(ids)


def test_broker_lost_under_a_running_worker(system: System) -> None:
    """The same with a worker and beat that run all the while and reconnect by themselves."""
    merchant = system.merchant("acme")
    system.start()
    system.servers.redis.stop()
    ids = [deliver.delay({**EVENT, "id": f"evt-{number}"}).id for number in range(50)]
    system.servers.redis.start()
    system.wait_for_count(State.DELIVERED, 50, timeout=60)
    assert sorted(str(request.webhook_id) for request in merchant.requests) == sorted(ids)


@pytest.mark.usefixtures("system")
def test_a_known_identity_by_name_asks_for_nothing_and_anothers_is_refused() -> None:
    """Pasted from Flower, of whichever endpoint: nothing new. Under another merchant or type it is another event."""
    accepting = parts.accepting()
    accepting.accept(EVENT)
    identity = {name: EVENT[name] for name in ("id", "merchant_id", "type")}
    accepting.accept_by_name(identity, "message")
    accepting.accept_by_name({**identity, "id": f"{EVENT['id']}~ep_books"}, "message")
    for other in ({"merchant_id": "other"}, {"type": "refund.completed"}):
        with pytest.raises(EventConflict):
            accepting.accept_by_name({**identity, **other}, "message")
    with pytest.raises(InvalidEvent):
        accepting.accept_by_name({**identity, "id": 5}, "message")
    assert [row.id for row in parts.views().of_event(EVENT["id"])] == [EVENT["id"]]
