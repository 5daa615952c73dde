"""How the broker's queues are seen: by peeking at their messages, and where no broker would show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery

from tests import courier
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.celery import lookouts
from webhooks.celery.app import DELIVERIES, SWEEP
from webhooks.celery.lookouts import Counting, Lookout, Peeking, choose
from webhooks.errors import BrokerUnavailable
from webhooks.ledger.taken import Taken

EVENT = {"type": "kyc.status_changed", "merchant_id": "acme"}
_FIRST = datetime(2026, 1, 31, tzinfo=UTC)


@dataclass(frozen=True)
class Line:
    """A queue with messages a minute apart, and what looks at it."""

    app: Celery
    lookout: Lookout

    def publish(self, *minutes: int) -> None:
        """Publish a message for each of these minutes."""
        for minute in minutes:
            self._send(queued_at=(_FIRST + timedelta(minutes=minute)).isoformat())

    def publish_by_name(self) -> None:
        """Publish somebody's complete event."""
        self._send()

    def _send(self, **headers: str) -> None:
        self.app.send_task("webhooks.deliver", args=[EVENT], queue=DELIVERIES, headers=headers)

    def take(self) -> None:
        """Take the next message, as a worker does."""
        with self.app.connection_for_read() as connection:
            message = connection.default_channel.basic_get(DELIVERIES, no_ack=True)
        if "queued_at" in message.headers:
            self.lookout.took(DELIVERIES, datetime.fromisoformat(message.headers["queued_at"]))

    def may_wait(self, minute: int) -> bool:
        """Whether a message of that minute may wait in the queue, as far as can be seen."""
        since = self.lookout.look(DELIVERIES).waits_from
        return since is not None and since <= _FIRST + timedelta(minutes=minute)


def counting(app: Celery, lately: timedelta = timedelta(minutes=1)) -> Counting:
    """Return what counts, and notes what is taken at once."""
    return Counting(app, Taken(parts.database(), lately=lately), pause=timedelta(), soon=lambda note: note())


@pytest.fixture(params=["peeking", "counting", "counting in memory"])
def line(request: pytest.FixtureRequest, system: System) -> Iterator[Line]:
    """An empty queue on the real broker, and on one that shows nothing."""
    match request.param:
        case "peeking":
            yield Line(app, Peeking(app))
        case "counting":
            yield Line(app, counting(app))
        case _:
            with Celery("elsewhere", broker="memory://", set_as_current=False) as elsewhere:
                elsewhere.conf.task_default_queue = DELIVERIES
                yield Line(elsewhere, counting(elsewhere))
                elsewhere.control.purge()


def test_in_an_empty_queue_nothing_waits(line: Line) -> None:
    """Neither before the first message nor after the last; then whatever was published is gone."""
    assert line.lookout.look(DELIVERIES) == line.lookout.look(SWEEP)
    line.publish(1)
    line.take()
    sighting = line.lookout.look(DELIVERIES)
    assert (sighting.depth, sighting.waits_from, sighting.oldest, sighting.next) == (0, None, None, None)


def test_what_waits_is_counted_and_never_taken_for_lost(line: Line) -> None:
    """However far the queue has moved on, each message that is still in it may wait (I7)."""
    line.publish(1, 2, 3, 4)
    for taken in range(4):
        assert line.lookout.look(DELIVERIES).depth == 4 - taken
        assert all(line.may_wait(minute) for minute in range(taken + 1, 5))
        line.take()


def test_what_was_lost_is_known_once_the_queue_has_moved_past_it(line: Line) -> None:
    """A message that is not there although later ones have been taken waits no more, while others do."""
    line.publish(2, 3, 4)  # the first minute's was lost
    line.take()
    assert not line.may_wait(1)
    line.take()
    assert not line.may_wait(2)
    assert line.may_wait(4)


def test_an_event_by_name_hides_nothing(line: Line) -> None:
    """It says no time, and what waits behind it may wait."""
    line.publish_by_name()
    line.publish(1, 2)
    assert line.lookout.look(DELIVERIES).depth == 3
    assert line.may_wait(1)
    line.take()
    assert line.may_wait(1)


def test_the_next_message_is_the_same_until_one_is_taken(line: Line) -> None:
    """So a worker that takes nothing is told from one that has just been given something."""
    line.publish(1, 2, 3)
    line.take()
    before = line.lookout.look(DELIVERIES).next
    assert before is not None
    assert line.lookout.look(DELIVERIES).next == before
    line.publish(4)
    assert line.lookout.look(DELIVERIES).next == before
    line.take()
    assert line.lookout.look(DELIVERIES).next not in {before, None}


def test_one_more_is_of_no_use_where_many_wait(line: Line) -> None:
    """Beat sends a sweep into an empty queue, and none onto a heap."""
    assert not line.lookout.is_waiting(DELIVERIES, "webhooks.sweep")
    line.publish(*range(51))
    assert line.lookout.is_waiting(DELIVERIES, "webhooks.sweep")


@pytest.mark.parametrize("make", [Peeking, counting])
def test_a_broker_that_is_away_is_named(system: System, make: Callable[[Celery], Lookout]) -> None:
    """One error, whichever way is looked."""
    with Celery("away", broker="redis://127.0.0.1:1/0", set_as_current=False) as away:
        away.conf.broker_transport_options = {"max_retries": 0}
        with pytest.raises(BrokerUnavailable, match="the broker cannot be reached: "):
            make(away).look(DELIVERIES)


@pytest.mark.parametrize(
    ("url", "way"), [("redis://h/0", Peeking), ("rediss://h/0", Peeking), ("amqp://h//", Counting)]
)
def test_the_brokers_url_says_which_way(system: System, url: str, way: type[Lookout]) -> None:
    """Only a Redis shows its messages."""
    assert isinstance(choose(url, app, Taken(parts.database())), way)


@pytest.fixture
def unseen(system: System, monkeypatch: pytest.MonkeyPatch) -> Lookout:
    """A system whose sweep sees no message of its queue."""
    system.set(recover_after=0.3)
    lookout = counting(app)
    monkeypatch.setattr(lookouts, "choose", lambda *_: lookout)
    return lookout


def _take(lookout: Lookout, redis: Any) -> None:
    message = courier.take(redis)
    assert message is not None
    lookout.took(DELIVERIES, message.queued_at)


def test_a_sweep_that_sees_no_message_publishes_none_again(system: System, unseen: Lookout) -> None:
    """While nobody takes, and behind what is taken: ticks past recover_after add nothing to a long queue (I7)."""
    redis = system.redis()
    for number in range(50):
        deliver.delay({**EVENT, "id": f"evt-{number}"})
    _tick_past_recovery(system)
    assert len(courier.waiting(redis)) == 50
    for _ in range(10):
        _take(unseen, redis)
    _tick_past_recovery(system)
    assert len(courier.waiting(redis)) == 40


def test_a_sweep_that_sees_no_message_finds_what_was_lost(system: System, unseen: Lookout) -> None:
    """A purge is seen at once; a gap in a queue that is never empty once workers have taken what came later (I1)."""
    redis = system.redis()
    for number in range(5):
        deliver.delay({**EVENT, "id": f"lost-{number}"})
    courier.forget(redis)
    _tick_past_recovery(system)
    assert len(courier.waiting(redis)) == 5
    courier.forget(redis)
    system.sql("UPDATE deliveries SET queued_at = queued_at - interval '1 minute'")
    for number in range(5):
        deliver.delay({**EVENT, "id": f"queued-{number}"})
    _tick_past_recovery(system)
    assert len(courier.waiting(redis)) == 5  # nobody takes anything: nothing would be gained
    _take(unseen, redis)
    _tick_past_recovery(system)
    assert len(courier.waiting(redis)) == 4 + 5


def _tick_past_recovery(system: System) -> None:
    system.sql("UPDATE deliveries SET sweep_at = now() WHERE state = 'pending'")
    for _ in range(3):
        parts.sweeper().tick()


def test_while_nobody_takes_everything_may_wait(system: System) -> None:
    """A worker that died was the last to take: the broker puts back what it had, behind whatever it noted."""
    line = Line(app, counting(app, lately=timedelta()))
    line.publish(3, 1, 2)
    line.take()
    assert line.may_wait(1)


def test_what_was_put_back_lowers_what_may_wait(system: System) -> None:
    """The message that is taken next is older than the last, and so may be what waits behind it."""
    line = Line(app, counting(app))
    line.publish(3, 1, 2, 4)
    line.take()
    assert not line.may_wait(2)
    line.take()
    assert line.may_wait(2)


def test_a_worker_notes_seldom_and_never_waits(system: System) -> None:
    """One note in a pause, however many messages; none while the one before is not written; an outage ends nothing."""
    notes: list[Callable[[], None]] = []
    lookout = Counting(app, Taken(parts.database()), pause=timedelta(), soon=notes.append)
    for minute in range(3):
        lookout.took(DELIVERIES, _FIRST + timedelta(minutes=minute))
    (note,) = notes
    with system.ledger_away():
        note()
    lookout.took(DELIVERIES, _FIRST)
    assert len(notes) == 2
    seldom = Counting(app, Taken(parts.database()), soon=lambda note: note())
    for minute in range(3):
        seldom.took(SWEEP, _FIRST + timedelta(minutes=minute))
    last = Taken(parts.database()).last(SWEEP)
    assert last is not None
    assert last.queued_at == _FIRST
