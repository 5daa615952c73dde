"""Looking at things with all that is known of them: what the ledger has, and what the gate says at this moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from webhooks import parts
from webhooks.errors import GateUnavailable
from webhooks.gate.values import Breaker
from webhooks.ledger.answering import Performance
from webhooks.ledger.rows import AttemptRow, DeliveryRow, History
from webhooks.model import Endpoint, HeldFor, State
from webhooks.policy.breaker import BreakerState

_LAST = 20  # answers of an endpoint


class Comes(StrEnum):
    """What comes next for a delivery."""

    NOTHING = "nothing"  # it has ended
    ANSWER = "answer"  # it is being sent now
    ATTEMPT = "attempt"  # it waits for its time
    RELEASE = "release"  # it is held


@dataclass(frozen=True, slots=True)
class Next:
    """What comes next for a delivery, and why, in words; `at` is when, where that is known and has not passed.

    Of a delivery that is held for a breaker this is the end of its pause: then one of the endpoint's probes.
    """

    what: Comes
    at: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Trail:
    """A delivery with its attempts, and what comes next."""

    history: History
    next: Next


@dataclass(frozen=True, slots=True)
class Look:
    """An endpoint with all that is known of it; `breaker` is None while the gate cannot be asked, as `gate` says."""

    endpoint: Endpoint
    breaker: Breaker | None
    gate: str | None
    performance: Performance
    last: Sequence[AttemptRow]


def delivery(delivery_id: str) -> Trail:
    """Return a delivery, how it came here, and what comes next. Raises NotPossible when there is none."""
    history = parts.views().delivery(delivery_id)
    return Trail(history, next_of(history.delivery))


def next_of(found: DeliveryRow) -> Next:
    """Return what comes next for a delivery; the gate is asked only where the answer is the gate's."""
    match found.state:
        case State.DELIVERED:
            return Next(Comes.NOTHING, None, "it was delivered")
        case State.FAILED:
            return Next(Comes.NOTHING, None, f"it failed: {found.reason}; a replay would send it again")
        case State.HELD:
            return _held(found)
        case State.PENDING if found.sending_since:
            return Next(Comes.ANSWER, None, f"attempt {found.attempts} is under way")
        case State.PENDING:
            which = f"attempt {found.attempts + 1}"
            if found.due_at > parts.views().now():
                return Next(Comes.ATTEMPT, found.due_at, f"{which} waits for its time")
            return Next(Comes.ATTEMPT, None, f"{which} is due, and waits for a worker")


def endpoint(endpoint_id: str) -> Look:
    """Return what is known of an endpoint. Raises NotPossible for an unknown one."""
    known = parts.endpoints().get(endpoint_id)
    breaker, gate = _breaker(endpoint_id)
    return Look(
        known, breaker, gate, parts.views().performance_at(endpoint_id), parts.views().last_answers(endpoint_id, _LAST)
    )


def merchant(merchant_id: str) -> tuple[Performance, Sequence[Look]]:
    """Return how all of a merchant's endpoints do together, and each for itself, by id; of a stranger what it holds."""
    return parts.views().performance_of(merchant_id), [endpoint(each.id) for each in parts.endpoints().of(merchant_id)]


_HELD = {
    HeldFor.ADDRESS: "its merchant has no address",
    HeldFor.LANE: "as many of its endpoint's deliveries as fit are on their way; it goes in its turn",
    HeldFor.RATE: "its endpoint gets no more attempts a second; it goes in its turn",
    HeldFor.OPERATOR: "an operator has paused its endpoint",
    HeldFor.REPLAY: "it is to be sent again, in its turn",
}


def _held(found: DeliveryRow) -> Next:
    keeps = parts.views().holding(found.endpoint_id).stay_for
    if keeps is not None:  # whatever it was held for at first
        return Next(Comes.RELEASE, None, _HELD[keeps])
    breaker, gate = _breaker(found.endpoint_id)
    if breaker is None:
        return Next(Comes.RELEASE, None, f"held for {found.held_for}; {gate}")
    match breaker.state:
        case BreakerState.PAUSED:
            return Next(Comes.RELEASE, breaker.until, "its endpoint's breaker is open until then; then one may try")
        case BreakerState.PROBING:
            return Next(Comes.RELEASE, None, f"its endpoint's breaker is open, and {breaker.probe or 'one'} tries now")
        case BreakerState.WORKING if found.held_for in {HeldFor.LANE, HeldFor.RATE, HeldFor.REPLAY}:
            return Next(Comes.RELEASE, None, _HELD[found.held_for])
        case BreakerState.WORKING:
            return Next(Comes.RELEASE, None, "what it was held for is over; it goes in its turn")


def _breaker(endpoint_id: str) -> tuple[Breaker | None, str | None]:
    try:
        return parts.gate().show(endpoint_id), None
    except GateUnavailable as error:
        return None, str(error)
