"""The log as a sink: the lines that operators look for, and their levels."""

from __future__ import annotations

import logging
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, get_type_hints

import pytest

from webhooks.model import HeldFor, Ladder, Outcome, Reason, State
from webhooks.observing import facts, log, surroundings
from webhooks.observing.facts import Fact
from webhooks.policy.decisions import Decision, Delivered, Failed, RetryAt

DEBUG, INFO, WARNING, ERROR = "DEBUG", "INFO", "WARNING", "ERROR"
DUE = datetime(2026, 1, 31, 12, tzinfo=UTC)
NAMES = "evt-1", "acme", "acme", "refund.completed"
BEAT, PUBLISHER = facts.BrokerUser.BEAT, facts.BrokerUser.PUBLISHER


def attempted(decision: Decision, status: int, *, probe: bool = False, late: bool = False) -> Fact:
    """Make the fact of an attempt that took a second."""
    cause = "redirects to example.com" if status == 302 else None
    ladder, took = (None if isinstance(decision, Delivered) else Ladder.FAST), timedelta(seconds=1.0004)
    return facts.Attempted(*NAMES, 2, Outcome.DELIVERED, status, cause, took, ladder, probe, decision, late)


LINES = [
    (
        attempted(Delivered(), 200, probe=True),
        INFO,
        (
            'delivery.attempted {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "attempt": 2, '
            '"outcome": "delivered", "status": 200, "ms": 1000, "probe": true, "then": "delivered"}'
        ),
    ),
    (
        attempted(RetryAt(DUE, Ladder.FAST), 302),
        INFO,
        (
            'delivery.attempted {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "attempt": 2, '
            '"outcome": "delivered", "status": 302, "cause": "redirects to example.com", "ms": 1000, "ladder": "fast", '
            '"then": "retry", "due": "2026-01-31T12:00:00.000+00:00"}'
        ),
    ),
    (
        attempted(Failed(Reason.REJECTED), 404, late=True),
        INFO,
        (
            'delivery.attempted {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "attempt": 2, '
            '"outcome": "delivered", "status": 404, "ms": 1000, "ladder": "fast", "then": "failed", '
            '"reason": "rejected", "late": true}'
        ),
    ),
    (
        facts.Finished(*NAMES, State.FAILED, Reason.EXPIRED),
        DEBUG,
        (
            'delivery.finished {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "state": "failed", '
            '"reason": "expired"}'
        ),
    ),
    (
        facts.DeliveryHeld(*NAMES, HeldFor.LANE),
        DEBUG,
        'delivery.held {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "held_for": "lane"}',
    ),
    (
        facts.Released(*NAMES, probe=True),
        DEBUG,
        'delivery.released {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "probe": true}',
    ),
    (facts.Interrupted("evt-1", "no way"), WARNING, "delivery.interrupted: delivery evt-1: no way"),
    (facts.Interrupted("evt-1", "no way", for_good=True), ERROR, "delivery.interrupted: delivery evt-1: no way"),
    (facts.Interrupted("evt-1", "no way", of_outage=True), DEBUG, "delivery.interrupted: delivery evt-1: no way"),
    (
        facts.ReleasePutOff("acme", probe=True, why="busy"),
        WARNING,
        "release.put_off: endpoint acme: its probe waits for the next offer: busy",
    ),
    (
        facts.ReleasePutOff("acme", probe=False, why="busy"),
        WARNING,
        "release.put_off: endpoint acme: its held deliveries wait for the next sweep: busy",
    ),
    (
        facts.ReleasePutOff("acme", probe=False, why="busy", others=3),
        WARNING,
        "release.put_off: endpoint acme and 3 others: their held deliveries wait for the next sweep: busy",
    ),
    (facts.BreakerOpened("acme", "acme"), INFO, 'breaker.opened {"merchant": "acme"}'),
    (
        facts.BreakerOpened("acme", "ep_books"),
        INFO,
        'breaker.opened {"merchant": "acme", "endpoint": "ep_books"}',
    ),
    (facts.BreakerClosed("acme", "acme"), INFO, 'breaker.closed {"merchant": "acme"}'),
    (facts.BreakerReset("acme"), DEBUG, 'breaker.reset {"endpoint": "acme"}'),
    (facts.LedgerAway("no route"), WARNING, "ledger.away: no route"),
    (facts.LedgerBack(), WARNING, "ledger.back: it is used again"),
    (facts.LedgerAwayAtStart("no route"), WARNING, "ledger.away_at_start: no route; going on until it can"),
    (
        facts.LedgerNewer("0009"),
        WARNING,
        "ledger.newer: the ledger stands at revision 0009, of a later release than this one",
    ),
    (facts.GateAway("no route"), WARNING, "gate.away: deliveries go on without breakers and lanes: no route"),
    (facts.GateBypassed(3), DEBUG, 'gate.bypassed {"calls": 3}'),
    (
        facts.GateBack(3),
        WARNING,
        "gate.back: breakers and lanes work again; calls that went without, in all: 3",
    ),
    (
        facts.BrokerAway(PUBLISHER, "no route"),
        WARNING,
        "broker.away: deliveries are recorded, and published once it is back: no route",
    ),
    (facts.BrokerAway(BEAT, "no route"), WARNING, "broker.away: no sweep is sent until it is back: no route"),
    (facts.BrokerBack(PUBLISHER), WARNING, "broker.back: messages are published again"),
    (facts.BrokerBack(BEAT), WARNING, "broker.back: sweeps are sent again"),
    (
        facts.Swept(expired=1, published=2, took=timedelta(seconds=0.25)),
        DEBUG,
        'sweep.done {"expired": 1, "buried": 0, "published": 2, "probes": 0, "released": 0, "ended": 0, "ms": 250}',
    ),
    (facts.SweepStopped("busy"), WARNING, "sweep.stopped: busy; the next tick tries again"),
    (
        facts.SweepStopped("no", for_good=True),
        ERROR,
        "sweep.stopped: no; what it was about stands still until that is mended",
    ),
    (facts.SweepStopped("away", of_outage=True), DEBUG, "sweep.stopped: away; the next tick tries again"),
    (facts.Pruned(7, timedelta(seconds=1)), DEBUG, 'pruning.done {"number": 7, "ms": 1000}'),
    (facts.PruningStopped("busy"), WARNING, "pruning.stopped: busy; it is tried again in a minute"),
    (surroundings.TallyStopped("busy"), WARNING, "tally.stopped: busy; it is tried again in a minute"),
    (
        surroundings.EventRefused("evt-1", None, None, "task-1", "type: must be a non-empty string"),
        ERROR,
        'event.refused {"event_id": "evt-1", "task_id": "task-1", "why": "type: must be a non-empty string"}',
    ),
    (
        surroundings.EventRefused(None, "Bücher", "x", "task-1", "no"),
        ERROR,
        'event.refused {"merchant_id": "Bücher", "type": "x", "task_id": "task-1", "why": "no"}',
    ),
    (surroundings.EventUnlisted("away"), WARNING, "event.unlisted: a refused event could not be listed: away"),
    (
        surroundings.EventWaits("away", of_outage=True),
        DEBUG,
        "event.waits: an event by name waits for the ledger: away",
    ),
    (surroundings.EventWaits("away"), WARNING, "event.waits: an event by name waits for the ledger: away"),
    (
        surroundings.StrangersMet(60, "evt-9"),
        WARNING,
        (
            "message.unknown: 60 of deliveries that are not in this ledger, evt-9 the latest; does another deployment "
            "use this Redis? Give each a WEBHOOKS_NAMESPACE of its own"
        ),
    ),
    (
        surroundings.MessageUnpublished("evt-1"),
        WARNING,
        "message.unpublished: delivery evt-1: the ledger could not be told that no message is on its way",
    ),
    (
        surroundings.MessageUnbooked("OOM"),
        WARNING,
        "message.unbooked: the broker could not book a message that was taken: OOM",
    ),
    (
        surroundings.MessageUnacknowledged("OOM", lost_connection=False),
        WARNING,
        "message.unacknowledged: the broker could not be told that a message is done: OOM",
    ),
    (
        surroundings.MessageUnacknowledged("closed", lost_connection=True),
        INFO,
        "message.unacknowledged: a message that came by a lost connection was not acknowledged: closed",
    ),
    (
        surroundings.ConnectionUnclosed("reset"),
        WARNING,
        "connection.unclosed: the lost connection could not be closed in order: reset",
    ),
    (
        surroundings.MessageDropped("ValueError"),
        ERROR,
        "message.dropped: something in the queue is no message, and was dropped: ValueError",
    ),
    (
        surroundings.RevokeRefused(),
        WARNING,
        (
            "revoke.refused: a revoke was refused: it would stop messages, not deliveries; use: webhooks delivery "
            "cancel ID"
        ),
    ),
    (
        surroundings.ClockWrong(timedelta(seconds=-30)),
        WARNING,
        (
            "clock.wrong: the clock of this machine is 30.0 s behind the ledger's: set it right. Deliveries are signed "
            "by the ledger's time; countdowns and the times in logs are this machine's"
        ),
    ),
    (
        surroundings.ClockWrong(timedelta(seconds=400)),
        WARNING,
        (
            "clock.wrong: the clock of this machine is 400.0 s ahead of the ledger's: set it right. Deliveries are "
            "signed by the ledger's time; countdowns and the times in logs are this machine's"
        ),
    ),
    (
        surroundings.SinkFailed("Metrics", "OSError: full"),
        ERROR,
        "sink.failed: Metrics hears nothing of what happens: OSError: full",
    ),
]
FACTS = [
    kind
    for module in (facts, surroundings)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Fact) and kind is not Fact
]
MAY_BE_TOLD: tuple[Any, ...] = (str, int, bool, timedelta, type(None), Delivered, RetryAt, Failed)


@pytest.mark.parametrize(("fact", "level", "line"), LINES, ids=[fact.name for fact, *_ in LINES])
def test_a_fact_is_one_line(fact: Fact, level: str, line: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its name first; JSON, or a sentence. Operators look for these words, and alert on these levels."""
    with caplog.at_level(logging.DEBUG, "webhooks"):
        log.write(fact)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, line)]


def test_nothing_is_formatted_that_nobody_reads(caplog: pytest.LogCaptureFixture) -> None:
    """A log that is set to warnings costs an attempt no JSON."""
    with caplog.at_level(logging.WARNING, "webhooks"):
        log.write(attempted(Delivered(), 200))
    assert caplog.records == []


def test_every_fact_has_its_line_here() -> None:
    """A new one comes as JSON at DEBUG until somebody decides otherwise, which is to be seen above."""
    assert {type(fact) for fact, *_ in LINES} == set(FACTS)
    assert len({kind.name for kind in FACTS}) == len(FACTS)


@pytest.mark.parametrize("kind", FACTS, ids=[kind.name for kind in FACTS])
def test_a_fact_has_no_room_for_a_body(kind: type[Fact]) -> None:
    """Words, numbers and times only: no Delivery, Attempt, Answer or bytes, that a sink might write down whole (I9)."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        for each in getattr(hints[field.name], "__args__", (hints[field.name],)):
            assert each in MAY_BE_TOLD or issubclass(each, Enum), field.name
        assert field.name not in {"url", "secret", "body", "excerpt", "address"}
