"""What the story relies on in a way to the broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.contracts.benches import PublisherBench

SOON = timedelta(seconds=30)


def test_what_is_published_can_be_taken(publisher_bench: PublisherBench) -> None:
    """As it was, slot and all, in the order in which it came, and to be looked at when it was meant to be."""
    first, second = publisher_bench.accept("evt-1"), replace(publisher_bench.accept("evt-2"), slot="slot:1")
    assert publisher_bench.publisher.publish(first, timedelta())
    assert publisher_bench.publisher.publish(second, SOON)
    assert (publisher_bench.take(), publisher_bench.take()) == ((first, timedelta()), (second, SOON))
    assert publisher_bench.take() is None
    assert publisher_bench.is_queued("evt-1")


def test_what_the_broker_does_not_take_the_ledger_knows(publisher_bench: PublisherBench) -> None:
    """It is no error: the sweep publishes it."""
    message = publisher_bench.accept()
    with publisher_bench.away():
        assert not publisher_bench.publisher.publish(message, timedelta())
    assert (publisher_bench.is_queued(), publisher_bench.take()) == (False, None)


def test_a_broker_that_is_back_is_used_at_once(publisher_bench: PublisherBench) -> None:
    """Nothing is remembered but that it was away."""
    message = publisher_bench.accept()
    with publisher_bench.away():
        publisher_bench.publisher.publish(message, timedelta())
    assert publisher_bench.publisher.publish(message, timedelta())
    assert publisher_bench.take() == (message, timedelta())


def test_a_stale_message_that_is_not_taken_says_nothing(publisher_bench: PublisherBench) -> None:
    """The delivery's live one may be on its way."""
    message = publisher_bench.accept()
    with publisher_bench.away():
        publisher_bench.publisher.publish(replace(message, turn=message.turn + 1), timedelta())
    assert publisher_bench.is_queued()
