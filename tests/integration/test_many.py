"""Many events in one call: recorded in batches, published by one connection, and named by their positions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg2
import pytest
from psycopg2.extras import RealDictCursor
from sqlalchemy import create_engine, make_url

from tests.integration.test_round_trips import counting
from tests.system import System
from webhooks import EventConflict, InvalidEvent, LedgerUnavailable, deliver, parts, publishing, record, record_many
from webhooks.accepting import batches
from webhooks.accepting.bursts import MOST_AT_ONCE
from webhooks.celery.app import DELIVERIES
from webhooks.errors import BrokerUnavailable
from webhooks.model import Message, State

Event = dict[str, Any]


def event(number: int, **more: Any) -> Event:
    """Return an event of a merchant's, one of many."""
    return {"id": f"evt-{number}", "type": "payment.status_changed", "merchant_id": "acme", **more}


def events(number: int, **more: Any) -> list[Event]:
    """Return many of them."""
    return [event(each, **more) for each in range(number)]


def crowd(number: int) -> list[Event]:
    """Return many events of a hundred merchants, so few of each that all have messages at once."""
    return [event(each, merchant_id=f"acme-{each % 100}") for each in range(number)]


def queue(system: System) -> list[str]:
    """Return whose messages wait in the broker's queue, the oldest first, and last those that may wait for others."""
    return [*first(system), *waiting(system)]


def first(system: System) -> list[str]:
    """Return whose messages go before others, the oldest first."""
    return ids_in(system, DELIVERIES)


def waiting(system: System) -> list[str]:
    """Return whose messages may wait for others, the oldest first."""
    return ids_in(system, f"{DELIVERIES}\x06\x163")


def ids_in(system: System, name: str) -> list[str]:
    """Return whose messages are in a list of the broker's."""
    return [json.loads(each)["headers"]["id"] for each in reversed(system.redis().lrange(name, 0, -1))]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is of ten events."""
    monkeypatch.setattr(batches, "MOST_EVENTS", 10)


def test_a_thousand_events_are_two_statements(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are accepted and published in the order in which they were given; the same again sends nothing new."""
    deliver.delay({**event(0), "id": "warm"})
    with counting(system, monkeypatch) as counted:
        assert deliver.many(each for each in crowd(1000)) == [f"evt-{number}" for number in range(1000)]
    assert counted.transactions == 2
    assert counted.commands["lpush"] == 2
    assert queue(system)[1:] == [f"evt-{number}" for number in range(1000)]
    assert deliver.many(crowd(1000)) == [f"evt-{number}" for number in range(1000)]
    assert system.counted() == {State.PENDING: 1001}
    assert len(queue(system)) == 1001


def test_what_is_known_in_part_is_accepted_for_the_rest(system: System) -> None:
    """A call that was cut off is made again: what it had brought is not sent anew."""
    deliver.many(events(7))
    deliver.many(events(12))
    assert queue(system) == [f"evt-{number}" for number in range(12)]


def test_no_events_are_no_work(system: System) -> None:
    """An empty call asks nobody."""
    with system.ledger_away():
        assert deliver.many([]) == []


def test_events_without_an_id_get_one(system: System) -> None:
    """Each its own, as with `delay`."""
    nameless = {"type": "kyc.status_changed", "merchant_id": "acme"}
    ids = deliver.many([nameless, nameless])
    assert len(set(ids)) == 2
    assert system.counted() == {State.PENDING: 2}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([*events(17), {"id": "evt-17", "type": "a.b"}], "event 17: merchant_id: must be a non-empty string"),
        ([event(0), "text"], "event 1: the event is a str; it must be a JSON object"),
        (event(0), "the events are a dict; they must be a list of events"),
        ("text", "the events are a str; they must be a list of events"),
        (None, "the events are a NoneType; they must be a list of events"),
    ],
    ids=["an event", "no event", "one event", "text", "nothing"],
)
def test_one_invalid_event_and_nothing_is_accepted(system: System, given: Any, why: str) -> None:
    """Whichever batch it would have been in: all are looked at before anything is recorded."""
    with pytest.raises(InvalidEvent, match=f"^{why}"):
        deliver.many(given)
    assert (system.counted(), queue(system)) == ({}, [])


@pytest.mark.usefixtures("small_batches")
def test_an_invalid_event_of_the_last_batch_keeps_the_first_from_being_recorded(system: System) -> None:
    """Otherwise a mistake in the data would leave a half of it accepted."""
    with pytest.raises(InvalidEvent, match=r"^event 25: type: "):
        deliver.many([*events(25), event(25, type="")])
    assert system.counted() == {}


@pytest.mark.usefixtures("small_batches")
def test_a_conflict_is_named_by_position_and_its_batch_is_not_accepted(system: System) -> None:
    """What stands is said: the batches before it, and nothing of it or after it."""
    deliver.delay(event(13))
    deliver.delay(event(17))
    clashing = [event(number, amount="9") if number in {13, 17} else event(number) for number in range(30)]
    with pytest.raises(EventConflict) as refusal:
        deliver.many(clashing)
    assert str(refusal.value) == (
        "event 13: id: evt-13, event 17: id: evt-17: accepted before with another body; "
        "events 0 to 9 are accepted, no other is accepted"
    )
    assert refusal.value.accepted == 10
    assert queue(system) == ["evt-13", "evt-17", *(f"evt-{number}" for number in range(10))]
    assert system.counted() == {State.PENDING: 12}
    deliver.many(events(30))
    assert system.counted() == {State.PENDING: 30}


def test_hundreds_of_conflicts_are_one_line_that_can_be_read(system: System) -> None:
    """The first are named, and of the rest how many there are."""
    deliver.many(events(100))
    with pytest.raises(EventConflict) as refusal:
        deliver.many(events(100, amount="9"))
    assert "event 19: id: evt-19 and 80 more: accepted before with another body; none is accepted" in str(refusal.value)
    assert (refusal.value.accepted, system.counted()) == (
        0,
        {State.PENDING: MOST_AT_ONCE, State.HELD: 100 - MOST_AT_ONCE},
    )


def test_an_id_that_comes_again_in_a_call_is_the_same_event(system: System) -> None:
    """With the same body it is accepted once, and with another one nothing is accepted."""
    assert deliver.many([event(0), event(1), event(0)]) == ["evt-0", "evt-1", "evt-0"]
    assert queue(system) == ["evt-0", "evt-1"]
    with pytest.raises(EventConflict, match=r"^event 4: id: evt-3 was given before, as event 1, with another body"):
        deliver.many([event(2), event(3), event(4), event(5), event(3, amount="9")])
    assert system.counted() == {State.PENDING: 2}


def test_a_batch_holds_no_more_than_fits(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large events make small batches, and one that is larger than a batch should be is a batch of its own."""
    monkeypatch.setattr(batches, "MOST_BYTES", 1000)
    deliver.delay({**event(0), "id": "warm"})
    with counting(system, monkeypatch) as counted:
        deliver.many([event(0, note="x" * 300), event(1, note="x" * 300), event(2, note="x" * 300), event(3)])
        deliver.many([event(4, note="x" * 2000), event(5)])
    assert (counted.transactions, counted.statements) == (2, 2)  # a batch of one is one statement


def test_what_comes_in_a_crowd_lets_others_go_first(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than twenty events in one call, or one by one within a second: single ones of others go before them."""
    monkeypatch.setattr(parts.accepting().bursts, "_clock_s", lambda: 0.0)
    deliver.many(events(20))
    deliver.many({**event(number), "merchant_id": f"m-{number}"} for number in range(100, 121))
    for number in range(200, 203):
        deliver.delay(event(number))
    deliver.delay({**event(300), "merchant_id": "other"})
    assert first(system) == [*(f"evt-{number}" for number in range(20)), "evt-300"]
    assert waiting(system) == [f"evt-{number}" for number in (*range(100, 121), 200, 201, 202)]


def test_without_the_ledger_nothing_is_accepted(system: System) -> None:
    """The error says so, and the same call again is right."""
    with system.ledger_away(), pytest.raises(LedgerUnavailable, match=r"; none is accepted$") as refusal:
        deliver.many(events(3))
    assert (refusal.value.accepted, "\n" in str(refusal.value)) == (0, False)
    assert queue(system) == []
    assert len(deliver.many(events(3))) == 3


_FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON deliveries FOR EACH ROW WHEN (NEW.id = 'evt-15') EXECUTE FUNCTION full_disk();
"""


@pytest.mark.usefixtures("small_batches")
def test_a_ledger_that_is_lost_in_between_leaves_what_it_had(system: System) -> None:
    """Here its disk is full at the second batch of three; the call is made again once there is room."""
    system.sql(_FULL)
    with pytest.raises(LedgerUnavailable, match=r"; events 0 to 9 are accepted, no other is accepted$") as refusal:
        deliver.many(events(30))
    assert refusal.value.accepted == 10
    assert queue(system) == [f"evt-{number}" for number in range(10)]
    system.sql("DROP TRIGGER full_disk ON deliveries; DROP FUNCTION full_disk")
    deliver.many(events(30))
    assert queue(system) == [f"evt-{number}" for number in range(30)]


def test_without_the_broker_all_are_accepted(system: System) -> None:
    """It is no error: each is left to the sweep, which publishes it once the broker is back."""
    system.servers.redis.stop()
    try:
        assert len(deliver.many(crowd(1000))) == 1000
    finally:
        system.servers.redis.start()
    (left,) = system.sql("SELECT count(*) AS number FROM deliveries WHERE queued_at IS NULL AND sweep_at = due_at")
    assert left.number == 1000
    assert parts.sweeper().tick().published == 1000


def test_a_broker_that_is_lost_in_between_has_what_it_took(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger knows of the others that no message is on its way."""
    publisher = parts.publisher()
    send, left = publisher._send, iter(range(1))

    def lost_after_one(given: Sequence[Message], wait: timedelta) -> None:
        if next(left, None) is None:
            raise BrokerUnavailable("lost")
        send(given, wait)

    monkeypatch.setattr(publishing, "AT_ONCE", 3)
    monkeypatch.setattr(publisher, "_send", lost_after_one)
    deliver.many(events(10))
    assert queue(system) == ["evt-0", "evt-1", "evt-2"]
    (left,) = system.sql("SELECT count(*) AS number FROM deliveries WHERE queued_at IS NULL AND sweep_at = due_at")
    assert left.number == 7


@pytest.mark.usefixtures("small_batches")
def test_many_in_the_callers_transaction_count_if_it_commits(system: System, database_url: str) -> None:
    """For SQLAlchemy's connections and the driver's own; no message is published, and a rollback leaves nothing."""
    engine = create_engine(make_url(database_url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        assert record_many(connection, events(25)) == [f"evt-{number}" for number in range(25)]
    engine.dispose()
    plain = psycopg2.connect(database_url)
    record_many(plain, (event(number) for number in range(20, 40)))
    plain.commit()
    record_many(plain, [event(50), event(51)])
    plain.rollback()
    plain.close()
    assert system.counted() == {State.PENDING: 40}
    assert queue(system) == []
    assert parts.sweeper().tick().published == 40


@pytest.mark.usefixtures("small_batches")
def test_a_conflict_leaves_the_callers_transaction_as_it_was(system: System, database_url: str) -> None:
    """Nothing of the call is in it, not even of the batches before; and what else it holds is still there."""
    deliver.delay(event(17))
    plain = psycopg2.connect(database_url, cursor_factory=RealDictCursor)  # rows by name are rows too
    record(plain, event(100))
    clashing = [event(number, amount="9") for number in range(30)]
    with pytest.raises(EventConflict, match=r"^event 17: id: evt-17: accepted before with another body; none is"):
        record_many(plain, clashing)
    with pytest.raises(InvalidEvent, match=r"^event 1: "):
        record_many(plain, [event(200), {}])
    assert record_many(plain, events(5)) == [f"evt-{number}" for number in range(5)]
    plain.commit()
    plain.close()
    recorded = {row.id for row in system.sql("SELECT id FROM deliveries")}
    assert recorded == {"evt-17", "evt-100", *(f"evt-{number}" for number in range(5))}


Accept = Callable[[str, Sequence[Event]], object]


def _by_record_many(database_url: str, given: Sequence[Event]) -> None:
    """Record in a transaction that is committed whatever record_many says."""
    plain = psycopg2.connect(database_url)
    try:
        record_many(plain, given)
    finally:
        plain.commit()
        plain.close()


@pytest.mark.parametrize(
    "accept", [lambda _url, given: deliver.many(given), _by_record_many], ids=["deliver.many", "record_many"]
)
def test_whoever_is_beaten_to_an_id_accepts_nothing(system: System, database_url: str, accept: Accept) -> None:
    """Another process records it at the same moment, unseen until it commits: a batch counts as a whole then too."""
    other = psycopg2.connect(database_url)
    record(other, event(2, amount="9"))
    with ThreadPoolExecutor(1) as pool:
        beaten = pool.submit(accept, database_url, events(5))
        system.wait_until(
            lambda: system.sql("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), "it waits for the other"
        )
        other.commit()
        with pytest.raises(EventConflict, match=r"^event 2: id: evt-2: accepted before with another body; none is"):
            beaten.result(30)
    other.close()
    assert [row.id for row in system.sql("SELECT id FROM deliveries")] == ["evt-2"]
    assert system.counted() == {State.PENDING: 1}


def test_two_that_share_events_do_not_wait_in_a_circle(system: System, database_url: str) -> None:
    """A batch takes its ids in one order, whatever the order in which it was given."""
    other = psycopg2.connect(database_url)
    record(other, event(1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(deliver.many, [event(2), event(1)])
        system.wait_until(
            lambda: system.sql("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), "it waits for the other"
        )
        record(other, event(2))
        other.commit()
        assert waiting.result(30) == ["evt-2", "evt-1"]
    other.close()
    assert (system.counted(), queue(system)) == ({State.PENDING: 2}, [])


def test_the_same_batch_by_several_at_once_is_accepted_once(system: System) -> None:
    """Nobody is refused, and each event has one message."""
    given = crowd(300)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(deliver.many, each) for each in (given, given[::-1]) * 2]
        assert all(len(call.result(30)) == 300 for call in calls)
    assert system.counted() == {State.PENDING: 300}
    assert sorted(queue(system)) == sorted(each["id"] for each in given)
