"""The log as a sink: the lines that operators look for, and their levels."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, get_type_hints

import pytest

from webhooks.model import HeldFor, Ladder, Outcome, Reason, State
from webhooks.observing import facts, lines, log, many, operators, surroundings
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
    lag = timedelta(seconds=0.25)
    return facts.Attempted(*NAMES, 2, Outcome.DELIVERED, status, cause, took, ladder, probe, decision, late, lag, probe)


LINES = [
    (
        attempted(Delivered(), 200, probe=True),
        INFO,
        (
            'delivery.attempted {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "attempt": 2, '
            '"outcome": "delivered", "status": 200, "ms": 1000, "probe": true, "then": "delivered", '
            '"lag_ms": 250, "released": true}'
        ),
    ),
    (
        attempted(RetryAt(DUE, Ladder.FAST), 302),
        INFO,
        (
            'delivery.attempted {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "attempt": 2, '
            '"outcome": "delivered", "status": 302, "cause": "redirects to example.com", "ms": 1000, "ladder": "fast", '
            '"then": "retry", "due": "2026-01-31T12:00:00.000+00:00", "lag_ms": 250}'
        ),
    ),
    (
        attempted(Failed(Reason.REJECTED), 404, late=True),
        INFO,
        (
            'delivery.attempted {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "attempt": 2, '
            '"outcome": "delivered", "status": 404, "ms": 1000, "ladder": "fast", "then": "failed", '
            '"reason": "rejected", "late": true, "lag_ms": 250}'
        ),
    ),
    (
        facts.Finished(*NAMES, State.FAILED, Reason.EXPIRED, money=True),
        DEBUG,
        (
            'delivery.finished {"id": "evt-1", "merchant": "acme", "type": "refund.completed", "state": "failed", '
            '"reason": "expired", "money": true}'
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
    (
        many.EndedApart(("evt-1", "evt-2"), Reason.EXPIRED),
        DEBUG,
        'deliveries.ended {"delivery_ids": ["evt-1", "evt-2"], "reason": "expired"}',
    ),
    (
        many.WaitingAgain(("evt-1",), "held for replay"),
        DEBUG,
        'deliveries.waiting_again {"delivery_ids": ["evt-1"], "why": "held for replay"}',
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
        surroundings.MetricsUnserved("port 9464 is taken"),
        WARNING,
        "metrics.unserved: this process goes on without a port for its metrics: port 9464 is taken",
    ),
    (
        surroundings.MetricsUnread("the ledger", "no right"),
        WARNING,
        "metrics.unread: what is measured of the ledger is left out until it can be read: no right",
    ),
    (
        surroundings.SinkFailed("Metrics", "OSError: full"),
        ERROR,
        "sink.failed: Metrics hears nothing of what happens: OSError: full",
    ),
    (
        operators.Acted("somebody", "paused acme", "they asked", None),
        DEBUG,
        'operator.acted {"who": "somebody", "what": "paused acme", "why": "they asked"}',
    ),
    (
        operators.LoggedIn("anna", "10.1.2.3"),
        INFO,
        'operator.logged_in {"who": "anna", "origin": "10.1.2.3"}',
    ),
    (
        operators.LoginFailed("anna", "10.1.2.3", None),
        WARNING,
        'operator.login_failed {"who": "anna", "origin": "10.1.2.3"}',
    ),
    (
        operators.LoginFailed(None, "10.1.2.3", timedelta(minutes=5)),
        WARNING,
        'operator.login_failed {"origin": "10.1.2.3", "waits_ms": 300000}',
    ),
    (
        operators.LoggedOut("anna", "10.1.2.3"),
        INFO,
        'operator.logged_out {"who": "anna", "origin": "10.1.2.3"}',
    ),
    (
        operators.NoticeSent(7, operators.NoticeKind.GONE, "acme", "acme", operators.RecipientName.MAIL, 2),
        INFO,
        (
            'notice.sent {"notice_id": 7, "kind": "endpoint_gone", "merchant": "acme", "recipient": "mail", '
            '"summed_up": 2}'
        ),
    ),
    (
        operators.RecipientAway(operators.RecipientName.URL, "answered 503"),
        WARNING,
        (
            "notice.recipient_away: no notice reaches the url: answered 503; it is tried again for a day. Try: "
            "webhooks notice test"
        ),
    ),
    (
        operators.RecipientBack(operators.RecipientName.URL),
        WARNING,
        "notice.recipient_back: notices reach the url again",
    ),
    (
        operators.NoticesStopped("busy"),
        WARNING,
        "notice.stopped: operators are not told everything: busy; it is tried again in a minute",
    ),
]
# What programs read at INFO, and people at DEBUG.
NEWS = [
    (facts.DeliveryHeld(*NAMES, HeldFor.LANE), {"id": "evt-1", "merchant": "acme", "held_for": "lane"}),
    (facts.Released(*NAMES, probe=True), {"id": "evt-1", "probe": True}),
    (
        facts.Finished(*NAMES, State.FAILED, Reason.EXPIRED, money=False),
        {"id": "evt-1", "state": "failed", "reason": "expired"},
    ),
    (facts.BreakerReset("acme"), {"endpoint": "acme"}),
    (facts.Swept(expired=1), {"expired": 1, "ms": 0}),
    (facts.Swept(buried=1), {"buried": 1}),
    (facts.Swept(ended=1), {"ended": 1}),
    (operators.Acted("somebody", "paused acme", None, None), {"who": "somebody", "what": "paused acme"}),
]
NO_NEWS = [facts.Finished(*NAMES, State.DELIVERED, None, money=False), facts.Swept(published=9), facts.GateBypassed(3)]
FACTS = [
    kind
    for module in (facts, many, operators, surroundings)
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
            assert each is ... or each in MAY_BE_TOLD or issubclass(each, Enum), field.name
        assert field.name not in {"url", "secret", "body", "excerpt", "address"}


def as_json(fact: Fact, caplog: pytest.LogCaptureFixture) -> Any:
    """Return a fact's line for programs, at INFO; None where there is none."""
    with caplog.at_level(logging.INFO, "webhooks"):
        log.sink_for(log.LogStyle.JSON)(fact)
    (record,) = caplog.records or (None,)
    return record and json.loads(lines.JsonLines().format(record))


@pytest.mark.parametrize(("fact", "said"), NEWS, ids=[str(fact) for fact, _ in NEWS])
def test_programs_read_at_info_what_becomes_of_things(
    fact: Fact, said: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Holds, releases, ends, resets and acts; a person would not read them line by line."""
    told = as_json(fact, caplog)
    assert told.items() >= {"name": fact.name, "level": INFO, "logger": "webhooks", **said}.items()


@pytest.mark.parametrize("fact", NO_NEWS, ids=str)
def test_programs_are_not_told_twice(fact: Fact, caplog: pytest.LogCaptureFixture) -> None:
    """An attempt says that its delivery was delivered; a tick that ended nothing is none of anybody's business."""
    assert as_json(fact, caplog) is None


@pytest.mark.parametrize(("fact", "level", "line"), LINES, ids=[fact.name for fact, *_ in LINES])
def test_a_fact_says_the_same_to_programs(fact: Fact, level: str, line: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its name, its fields, and the sentence that a person reads; what is worth more than INFO stays so."""
    told = as_json(fact, caplog)
    if told is None:
        assert level == DEBUG
        return
    assert told["level"] == (INFO if level == DEBUG else level)
    assert told["name"] == fact.name
    if "message" in told:
        assert line == f"{fact.name}: {told['message']}"
    else:
        assert told.items() >= json.loads(line.removeprefix(fact.name)).items()


def test_what_others_log_is_an_object_too() -> None:
    """With its moment in UTC to the millisecond, and the trace of what was raised; no line is ever broken in two."""
    try:
        int("half a line")
    except ValueError:
        record = logging.LogRecord("celery", logging.ERROR, "", 0, "it is %s", ("away\u2028",), sys.exc_info())
    record.created = 1_769_860_800.9996
    text = lines.JsonLines().format(record)
    told = json.loads(text)
    assert told.pop("trace").endswith("with base 10: 'half a line'")
    assert told == {
        "time": "2026-01-31T12:00:00.999Z",
        "level": ERROR,
        "logger": "celery",
        "message": "it is away\u2028",
    }
    assert text.isascii()
    assert len(text.splitlines()) == 1
