"""Which messages a worker takes, and how many: places are for work, and waiting for a merchant is none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from celery.concurrency.thread import TaskPool
from celery.worker.consumer import Consumer
from kombu.transport import redis

from tests import courier
from tests.merchant import Merchant, Reply, Stall
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.celery import messages
from webhooks.celery.app import DELIVERIES, SLOW
from webhooks.celery.channel import Channel
from webhooks.celery.lookouts import Peeking
from webhooks.celery.turns import Turns
from webhooks.demo.stage import wait_until
from webhooks.model import State
from webhooks.process.waiting import Waits

EVENT = {"type": "payment.status_changed", "status": "paid"}


def _hangs(system: System, merchant_id: str) -> Merchant:
    merchant = system.merchant(merchant_id)
    merchant.answers(Reply(200, steps=(Stall(),)), Reply(200))
    return merchant


def _prefetch_count() -> object:
    return _stats().get("prefetch_count")


def _stats() -> Any:
    (stats,) = (app.control.inspect(timeout=1, limit=1).stats() or {"": {}}).values()
    return stats


def test_silent_merchants_take_nobodys_place(system: System) -> None:
    """With two places and three merchants that hang, a healthy one is served; afterwards there are two places again."""
    system.set(deadline=60)
    system.start("-c", "2")
    hanging = [_hangs(system, f"hangs-{number}") for number in range(3)]
    system.merchant("healthy")
    for number in range(3):
        deliver.delay({**EVENT, "id": f"silent-{number}", "merchant_id": f"hangs-{number}"})
    for merchant in hanging:
        merchant.wait_for(1)
    deliver.delay({**EVENT, "id": "quick", "merchant_id": "healthy"})
    system.wait_for_state(State.DELIVERED, "quick")
    assert not system.counted().get(State.DELIVERED, 0) > 1
    for merchant in hanging:
        merchant.drop_connections()
    system.wait_for_count(State.DELIVERED, 4)
    system.wait_until(lambda: _prefetch_count() == 2, "each place is back")


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_pool_that_was_chosen_by_hand_starts(system: System, pool: str) -> None:
    """It delivers, and gives no places away."""
    system.stage.worker("worker", "-P", pool, "-c", "2")
    system.merchant("acme")
    deliver.delay({**EVENT, "id": "evt", "merchant_id": "acme"})
    system.wait_for_state(State.DELIVERED, "evt")


def test_places_are_added_and_taken_away_by_hand(system: System) -> None:
    """`pool_grow` and `pool_shrink` move the number of messages that a worker takes."""
    system.stage.worker("worker", "-c", "2")
    app.control.pool_grow(3, reply=True)
    system.wait_until(lambda: _prefetch_count() == 5, "it has five places")
    assert _stats()["pool"]["max-concurrency"] == 5
    app.control.pool_shrink(2, reply=True)
    system.wait_until(lambda: _prefetch_count() == 3, "it has three places")


def test_slow_endpoints_leave_places_to_quick_work(system: System) -> None:
    """Of two places, with no more to give, one is kept for quick work: it is served while slow messages wait."""
    hanging = [_hangs(system, f"hangs-{number}") for number in range(3)]
    system.merchant("healthy")
    for number in range(3):
        message = courier.accept({**EVENT, "id": f"slow-{number}", "merchant_id": f"hangs-{number}"})
        messages.publish(replace(message, slow=True), timedelta())
    system.set(deadline=60)
    system.stage.worker("worker", "-P", "threads", "-c", "2", "-Q", f"{DELIVERIES},{SLOW}")
    wait_until(lambda: any(merchant.requests for merchant in hanging), "a slow one is being sent")
    for number in range(5):
        deliver.delay({**EVENT, "id": f"quick-{number}", "merchant_id": "healthy"})
    system.wait_for_state(State.DELIVERED, *(f"quick-{number}" for number in range(5)))
    assert system.redis().llen(SLOW) == 2
    assert sum(len(merchant.requests) for merchant in hanging) == 1


def test_flower_hears_of_what_was_done_last(system: System) -> None:
    """Events are gathered for a moment, and a worker that is told to stop sends what it has gathered."""
    worker = system.stage.worker("worker", "-c", "2")
    merchant = system.merchant("acme")
    heard: list[str] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"task-succeeded": lambda event: heard.append(event["uuid"])}
        )
        with receiver.consumer_context() as (listener, *_):
            listening = system.redis().pubsub_numpat()
            with contextlib.suppress(TimeoutError):
                listener.drain_events(timeout=0.1)
            wait_until(lambda: system.redis().pubsub_numpat() > listening, "its events are listened to")
            deliver.delay({**EVENT, "id": "last", "merchant_id": "acme"})
            merchant.wait_for(1)
            worker.stop()
            while not heard:
                listener.drain_events(timeout=10)
    assert heard == ["last"]


class Taking:
    """A channel that consumes, without a worker."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.taken: list[Any] = []
        self.later: list[Callable[[], None]] = []

    def consume(self, places: int, *queues: str) -> None:
        """Take messages from queues, so many at most."""
        self.channel.basic_qos(0, places, False)
        self.channel.qos.serve(lambda _seconds, call: self.later.append(call))
        for queue in queues:
            self.channel.basic_consume(queue, no_ack=False, callback=self.taken.append, consumer_tag=queue)

    def turn(self) -> list[Any]:
        """Wait for the next messages, and return them."""
        before = len(self.taken)
        self.channel.connection.drain_events(self.channel.connection.client, timeout=5)
        return self.taken[before:]


@pytest.fixture
def taking(system: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    """A channel of a worker's kind."""
    monkeypatch.setattr(redis.Transport, "Channel", Channel)
    with app.connection_for_read() as connection, contextlib.suppress(OSError):
        yield Taking(connection.channel())


def _publish(*ids: str, queue: str = DELIVERIES, priority: int = 0) -> None:
    for each in ids:
        app.send_task("webhooks.deliver", [{"id": each}], task_id=each, queue=queue, priority=priority)


def _ids(taken: list[Any]) -> list[str]:
    return [message.headers["id"] for message in taken]


def test_both_ranks_have_their_turns(system: System, taking: Taking) -> None:
    """Neither waits for more than one message of the other."""
    _publish("first-1", "first-2", "first-3")
    _publish("may-wait-1", "may-wait-2", "may-wait-3", priority=3)
    taking.consume(1, DELIVERIES)
    for _ in range(6):
        for message in taking.turn():
            message.ack()
    alternating = _ids(taking.taken)
    assert [each.rpartition("-")[0] for each in alternating] == ["first", "may-wait"] * 3


def test_what_may_wait_gets_a_small_part_while_first_tries_come(system: System, taking: Taking) -> None:
    """Two at once, beside those whose merchants are waited for; when no first try comes any more, as many as there are.

    What is taken together with a first try are first tries.
    """
    _publish("first-1", "first-2")
    _publish(*(f"may-wait-{number}" for number in range(8)), priority=3)
    taking.consume(20, DELIVERIES)
    assert _ids(taking.turn()) == ["first-1", "first-2"]
    assert [_ids(taking.turn()) for _ in range(2)] == [["may-wait-0"], ["may-wait-1"]]
    places = taking.channel.qos
    assert (places.first_tries_come, places.has_room_for_what_may_wait()) == (True, False)
    with parts.waits().one():
        assert places.has_room_for_what_may_wait()
        assert _ids(taking.turn()) == ["may-wait-2"]
    assert not places.has_room_for_what_may_wait()
    taking.taken[-1].ack()
    assert not places.has_room_for_what_may_wait()
    taking.taken[-2].ack()
    assert _ids(taking.turn()) == ["may-wait-3"]
    places._first_try_s = float("-inf")  # as if the last one had come long ago
    assert len(taking.turn()) == 4
    assert system.redis().llen(f"{DELIVERIES}\x06\x163") == 0


def test_no_more_are_taken_than_there_are_places(system: System, taking: Taking) -> None:
    """Several at once, each booked; what is done is told a moment later, together, and frees its place at once."""
    broker = system.redis()
    _publish(*(f"evt-{number}" for number in range(5)))
    taking.consume(3, DELIVERIES)
    assert len(taking.turn()) == 3
    assert (broker.llen(DELIVERIES), broker.hlen("unacked"), broker.zcard("unacked_index")) == (2, 3, 3)
    for message in taking.taken[:2]:
        message.ack()
    assert broker.hlen("unacked") == 3
    assert taking.channel.qos.free() == 2
    (tell,) = taking.later
    tell()
    assert (broker.hlen("unacked"), broker.zcard("unacked_index")) == (1, 1)


def test_what_is_done_is_told_before_a_channel_closes(system: System, taking: Taking) -> None:
    """And what is not done goes back into its queue, whichever way it was taken."""
    broker = system.redis()
    _publish(*(f"evt-{number}" for number in range(4)))
    taking.consume(3, DELIVERIES)
    taking.turn()[0].ack()
    taking.channel.close()
    assert (broker.llen(DELIVERIES), broker.hlen("unacked")) == (3, 0)


def test_what_is_no_message_is_dropped_beside_others(system: System, taking: Taking) -> None:
    """It leaves nothing in the broker's book, and hides nothing."""
    broker = system.redis()
    _publish("evt-1")
    broker.lpush(DELIVERIES, "no message")
    strays: list[dict[str, Any]] = [{}, {"properties": {}}, {"properties": {"delivery_tag": "x", "delivery_info": {}}}]
    for stray in strays:
        broker.lpush(DELIVERIES, json.dumps({"body": "e30=", "headers": {}, **stray}))
    _publish("evt-2")
    envelope = json.loads(broker.lindex(DELIVERIES, 0))
    envelope["body"] = "not base64"
    envelope["properties"]["delivery_tag"] = "another"
    broker.lpush(DELIVERIES, json.dumps(envelope))
    taking.consume(10, DELIVERIES)
    assert _ids(taking.turn()) == ["evt-1", "evt-2"]
    (tell,) = taking.later
    tell()
    assert (broker.llen(DELIVERIES), broker.hlen("unacked")) == (0, 2)


def test_one_client_serves_a_channel_until_its_connections_are_new(taking: Taking) -> None:
    """A forked process, or a closed channel, has other connections."""
    with taking.channel.conn_or_acquire() as one, taking.channel.conn_or_acquire() as same:
        assert one is same
    taking.channel._after_fork()
    with taking.channel.conn_or_acquire() as other:
        assert other is not one
        assert other.ping()


def test_the_oldest_of_both_ranks_is_seen(system: System) -> None:
    """The sweep must not take for lost what waits in either (I7)."""
    for minute, rank in ((3, 0), (1, 3), (2, 3)):
        headers = {"queued_at": f"2026-01-31T00:0{minute}:00+00:00"}
        app.send_task("webhooks.deliver", [{}], queue=DELIVERIES, headers=headers, priority=rank)
    sighting = Peeking(app).look(DELIVERIES)
    assert sighting.depth == 3
    assert sighting.waits_from is not None
    assert sighting.waits_from.minute == 1
    assert app.control.purge() == 3


def test_each_list_has_its_turn() -> None:
    """The one that gave the last message comes last; one that is new waits behind the others."""
    turns = Turns()
    turns.among(["a", "b"])
    turns.took("a")
    turns.among(["a", "b", "c"])
    assert turns.order() == ["b", "a", "c"]
    assert turns.order(lambda name: name != "a") == ["b", "c"]


def test_only_those_that_wait_are_counted() -> None:
    """A wait ends with its block, also by an error."""
    waits = Waits()
    with contextlib.suppress(OSError), waits.one():
        assert waits.longer_than(-1) == 1
        assert waits.longer_than(60) == 0
        raise OSError
    assert waits.longer_than(-1) == 0


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (redis.Channel, "_brpop_start"),
        (redis.Channel, "_brpop_read"),
        (redis.Channel, "_update_queue_cycle"),
        (redis.Channel, "_q_for_pri"),
        (redis.Channel, "_flush_brpop_reauth"),
        (redis.Channel, "conn_or_acquire"),
        (redis.QoS, "append"),
        (redis.QoS, "restore_by_tag"),
        (redis.QoS, "pipe_or_acquire"),
        (Consumer, "register_with_event_loop"),
        (Consumer, "on_send_event_buffered"),
        (Consumer, "_flush_events"),
        (Consumer, "apply_eta_task"),
        (Consumer, "max_prefetch_count"),
        (TaskPool, "on_stop"),
    ],
)
def test_kombu_and_celery_have_what_is_overridden(kind: type, name: str) -> None:
    """A new version that calls it otherwise would leave our own part of it unused, and nobody would notice."""
    assert hasattr(kind, name), f"{kind.__module__}.{kind.__qualname__} no longer has {name}: see webhooks/celery"
