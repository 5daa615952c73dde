"""The log as a sink: one line for each fact, that begins with its name; compact JSON, or a sentence for a person.

Where programs read it (`LogStyle.JSON`), every line is one JSON object, and at INFO stands whatever happens to a
delivery, an endpoint or by hand; `webhooks/observing/lines.py` writes it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum
from typing import Any

from webhooks.model import State
from webhooks.observing import facts, operators, surroundings
from webhooks.observing.facts import BrokerUser, Fact
from webhooks.policy.decisions import Decision, Delivered, Failed, RetryAt

log = logging.getLogger("webhooks")


class LogStyle(StrEnum):
    """Who reads the log."""

    TEXT = "text"  # people
    JSON = "json"  # programs


# What is not named here comes at DEBUG: at INFO an attempt is one line.
_LEVELS: Mapping[type[Fact], int] = {
    facts.Attempted: logging.INFO,
    facts.BreakerOpened: logging.INFO,
    facts.BreakerClosed: logging.INFO,
    operators.LoggedIn: logging.INFO,
    operators.LoggedOut: logging.INFO,
    operators.NoticeSent: logging.INFO,
    surroundings.EventRefused: logging.ERROR,
    surroundings.MessageDropped: logging.ERROR,
    surroundings.SinkFailed: logging.ERROR,
    **dict.fromkeys(
        (
            facts.BrokerAway,
            facts.BrokerBack,
            facts.GateAway,
            facts.GateBack,
            facts.LedgerAway,
            facts.LedgerAwayAtStart,
            facts.LedgerBack,
            facts.LedgerNewer,
            facts.PruningStopped,
            surroundings.TallyStopped,
            facts.ReleasePutOff,
            operators.LoginFailed,
            operators.NoticesStopped,
            operators.RecipientAway,
            operators.RecipientBack,
            surroundings.ClockWrong,
            surroundings.ConnectionUnclosed,
            surroundings.EventUnlisted,
            surroundings.EventWaits,
            surroundings.MessageUnbooked,
            surroundings.MessageUnpublished,
            surroundings.MetricsUnread,
            surroundings.MetricsUnserved,
            surroundings.RevokeRefused,
            surroundings.StrangersMet,
        ),
        logging.WARNING,
    ),
}
_NEWS = (facts.DeliveryHeld, facts.Released, facts.BreakerReset, operators.Acted)
_SHORT = {"delivery_id": "id", "merchant_id": "merchant", "endpoint_id": "endpoint"}
_SPANS = {"duration": "ms", "took": "ms"}
_WHILE_AWAY = {
    BrokerUser.PUBLISHER: "deliveries are recorded, and published once it is back",
    BrokerUser.BEAT: "no sweep is sent until it is back",
}
_ONCE_BACK = {
    BrokerUser.PUBLISHER: "messages are published again",
    BrokerUser.BEAT: "sweeps are sent again",
}


@dataclass(frozen=True, slots=True)
class Line:
    """What is logged of a fact: made into text, or told to a program, only where somebody reads it."""

    fact: Fact

    def __str__(self) -> str:
        """Return the line as text."""
        sentence = _sentence(self.fact)
        return f"{self.fact.name}: {sentence}" if sentence else f"{self.fact.name} {_as_json(self.fact)}"

    def told(self) -> dict[str, Any]:
        """Return the fact's name and what it says, with the sentence for a person where it has one."""
        sentence = _sentence(self.fact)
        return {"name": self.fact.name, **_told(self.fact), **({"message": sentence} if sentence else {})}


def sink_for(style: LogStyle) -> Callable[[Fact], None]:
    """Return the sink that writes the log in a style."""
    return write if style is LogStyle.TEXT else write_for_programs


def write(fact: Fact) -> None:
    """Write a fact's line, for people: an attempt is one, and what is not worth waking anybody comes at DEBUG."""
    _write(fact, _level(fact))


def write_for_programs(fact: Fact) -> None:
    """Write a fact's line, at INFO also what people would not read line by line: holds, releases, ends, acts."""
    level = _level(fact)
    _write(fact, logging.INFO if level < logging.INFO and _is_news(fact) else level)


def _write(fact: Fact, level: int) -> None:
    if log.isEnabledFor(level):
        log.log(level, Line(fact))


def _is_news(fact: Fact) -> bool:
    match fact:
        case facts.Finished(state=state):
            return state is State.FAILED  # of a delivered one its attempt has said so: `"then": "delivered"`
        case facts.Swept(expired=expired, buried=buried, ended=ended):
            return bool(expired or buried or ended)
        case _:
            return isinstance(fact, _NEWS)


def _level(fact: Fact) -> int:
    match fact:
        case (
            facts.Interrupted(of_outage=True)
            | facts.SweepStopped(of_outage=True)
            | surroundings.EventWaits(of_outage=True)
        ):
            return logging.DEBUG  # its begin and its end have lines of their own
        case facts.Interrupted(for_good=for_good) | facts.SweepStopped(for_good=for_good):
            return logging.ERROR if for_good else logging.WARNING
        case surroundings.MessageUnacknowledged(lost_connection=lost):
            return logging.INFO if lost else logging.WARNING
        case _:
            return _LEVELS.get(type(fact), logging.DEBUG)


def _sentence(fact: Fact) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one line for each fact
    """Say what a person should do or need not do about it; None where the fact speaks for itself."""
    match fact:
        case facts.Attempted():
            return None  # the most frequent one
        case facts.Interrupted(delivery_id=delivery_id, why=why):
            return f"delivery {delivery_id}: {why}"
        case facts.ReleasePutOff(endpoint_id=endpoint_id, probe=probe, why=why, others=others):
            who = f"endpoint {endpoint_id}" + (f" and {others} others" if others else "")
            whose = "their" if others else "its"
            what = "probe waits for the next offer" if probe else "held deliveries wait for the next sweep"
            return f"{who}: {whose} {what}: {why}"
        case facts.LedgerAway(why=why):
            return why
        case facts.LedgerBack():
            return "it is used again"
        case facts.LedgerAwayAtStart(why=why):
            return f"{why}; going on until it can"
        case facts.LedgerNewer(revision=revision):
            return f"the ledger stands at revision {revision}, of a later release than this one"
        case facts.GateAway(why=why):
            return f"deliveries go on without breakers and lanes: {why}"
        case facts.GateBack(bypassed=bypassed):
            return f"breakers and lanes work again; calls that went without, in all: {bypassed}"
        case facts.BrokerAway(user=user, why=why):
            return f"{_WHILE_AWAY[user]}: {why}"
        case facts.BrokerBack(user=user):
            return _ONCE_BACK[user]
        case facts.SweepStopped(for_good=True, why=why):
            return f"{why}; what it was about stands still until that is mended"
        case facts.SweepStopped(why=why):
            return f"{why}; the next tick tries again"
        case facts.PruningStopped(why=why) | surroundings.TallyStopped(why=why):
            return f"{why}; it is tried again in a minute"
        case _:
            return _around(fact)


def _around(fact: Fact) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one line for each fact
    match fact:
        case surroundings.EventUnlisted(why=why):
            return f"a refused event could not be listed: {why}"
        case surroundings.EventWaits(why=why):
            return f"an event by name waits for the ledger: {why}"
        case surroundings.StrangersMet(number=number, latest=latest):
            return (
                f"{number} of deliveries that are not in this ledger, {latest} the latest; does another deployment use "
                "this Redis? Give each a WEBHOOKS_NAMESPACE of its own"
            )
        case surroundings.MessageUnpublished(delivery_id=delivery_id, others=others):
            more = f" and {others} more" if others else ""
            return f"delivery {delivery_id}{more}: the ledger could not be told that no message is on its way"
        case surroundings.MessageUnbooked(why=why):
            return f"the broker could not book a message that was taken: {why}"
        case surroundings.MessageUnacknowledged(lost_connection=True, why=why):
            return f"a message that came by a lost connection was not acknowledged: {why}"
        case surroundings.MessageUnacknowledged(why=why):
            return f"the broker could not be told that a message is done: {why}"
        case surroundings.ConnectionUnclosed(why=why):
            return f"the lost connection could not be closed in order: {why}"
        case surroundings.MessageDropped(why=why):
            return f"something in the queue is no message, and was dropped: {why}"
        case surroundings.RevokeRefused():
            return "a revoke was refused: it would stop messages, not deliveries; use: webhooks delivery cancel ID"
        case surroundings.ClockWrong(ahead=ahead):
            return (
                f"the clock of this machine is {abs(ahead.total_seconds()):.1f} s "
                f"{'ahead of' if ahead > timedelta() else 'behind'} the ledger's: set it right. Deliveries are signed "
                "by the ledger's time; countdowns and the times in logs are this machine's"
            )
        case surroundings.MetricsUnserved(why=why):
            return f"this process goes on without a port for its metrics: {why}"
        case surroundings.MetricsUnread(part=part, why=why):
            return f"what is measured of {part} is left out until it can be read: {why}"
        case surroundings.SinkFailed(sink=sink, why=why):
            return f"{sink} hears nothing of what happens: {why}"
        case operators.RecipientAway(recipient=recipient, why=why):
            return f"no notice reaches the {recipient}: {why}; it is tried again for a day. Try: webhooks notice test"
        case operators.RecipientBack(recipient=recipient):
            return f"notices reach the {recipient} again"
        case operators.NoticesStopped(why=why):
            return f"operators are not told everything: {why}; it is tried again in a minute"
        case _:
            return None


def _as_json(fact: Fact) -> str:
    return json.dumps(_told(fact), ensure_ascii=False)


def _told(fact: Fact) -> dict[str, Any]:
    """Return what there is to say, and leave out what there is not."""
    told: dict[str, Any] = {}
    short = {} if isinstance(fact, surroundings.EventRefused) else _SHORT  # its names are those of its row in the list
    for field in fields(fact):
        value = getattr(fact, field.name)
        if value is None or value is False or (field.name == "endpoint_id" and value == told.get("merchant")):
            continue  # a merchant's default endpoint has its id
        if isinstance(value, timedelta):
            told[_SPANS.get(field.name, f"{field.name}_ms")] = round(value / timedelta(milliseconds=1))
        elif isinstance(value, Delivered | RetryAt | Failed):
            told |= _then(value)
        else:
            told[short.get(field.name, field.name)] = value
    return told


def _then(decision: Decision) -> dict[str, str]:
    match decision:
        case Delivered():
            return {"then": "delivered"}
        case RetryAt(due_at=due_at):
            return {"then": "retry", "due": due_at.isoformat(timespec="milliseconds")}
        case Failed(reason=reason):
            return {"then": "failed", "reason": reason.value}
