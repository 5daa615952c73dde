"""What can be done here: acts of `webhooks.operating`, each with who and why, as operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from webhooks.ledger.desk import OnDesk
from webhooks.ledger.replays import Verdict
from webhooks.model import Endpoint, Operator, Reason
from webhooks.operating import breakers, deliveries, desk, endpoints, pinging
from webhooks.operating.breakers import Reset
from webhooks.operating.deliveries import EventReplay
from webhooks.operating.pinging import Pinged
from webhooks.page.masking import masked
from webhooks.page.operations import Operation, act
from webhooks.page.typed import Id, Ids, Optional, Why

_TOLD = 5  # verdicts that stand in a line
_BATCHES = 4  # of a group that one request works off: it has to end while somebody waits


@dataclass(frozen=True, slots=True)
class Reasoned:
    """Why it is done, for the audit."""

    why: Why


@dataclass(frozen=True, slots=True)
class ToReplay:
    """Which deliveries to send again; `again`: also what was delivered; `cancelled`: also what was cancelled."""

    delivery_ids: Ids
    why: Why
    again: bool = False
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """Which deliveries are meant."""

    delivery_ids: Ids
    why: Why


@dataclass(frozen=True, slots=True)
class EventToReplay:
    """To which endpoint to send an event again, all where none is named."""

    why: Why
    endpoint_id: Optional = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """What is to be known of which failed deliveries."""

    delivery_ids: Ids
    text: Why


@dataclass(frozen=True, slots=True)
class GroupMeant:
    """What is on the desk of one merchant for one reason."""

    merchant_id: Id
    reason: Reason
    why: Why


@dataclass(frozen=True, slots=True)
class Worked:
    """With how many deliveries of a group it was done, with how many not, and whether more may be left."""

    done: int
    refused: int
    more: bool


def replay_deliveries(by: Operator, wish: ToReplay) -> Sequence[Verdict]:
    """Send deliveries again: same id, same bytes, fresh budgets, paced like any release."""
    return deliveries.replay(by, wish.delivery_ids, again=wish.again, cancelled=wish.cancelled)


def cancel_deliveries(by: Operator, wish: Named) -> Sequence[Verdict]:
    """End deliveries for good: nothing of theirs is sent from here on."""
    return deliveries.cancel(by, wish.delivery_ids)


def replay_event(by: Operator, event_id: str, wish: EventToReplay) -> EventReplay:
    """Send an event again to all endpoints that had it, and to those that want it by now, or to one."""
    return deliveries.replay_event(by, event_id, endpoint_id=wish.endpoint_id or None, cancelled=wish.cancelled)


def reset_breaker(by: Operator, endpoint_id: str, wish: Reasoned) -> Reset:  # noqa: ARG001 - its reason is the operator's
    """Close an endpoint's breaker and release what it holds."""
    return breakers.reset(by, endpoint_id)


def pause_endpoint(by: Operator, endpoint_id: str, wish: Reasoned) -> Endpoint:  # noqa: ARG001
    """Hold an endpoint's deliveries, fresh ones and retries, until it is resumed."""
    return masked(endpoints.pause(by, endpoint_id, paused=True))


def resume_endpoint(by: Operator, endpoint_id: str, wish: Reasoned) -> Endpoint:  # noqa: ARG001
    """Let a paused endpoint's deliveries go again, paced, oldest first."""
    return masked(endpoints.pause(by, endpoint_id, paused=False))


def ping_endpoint(by: Operator, endpoint_id: str, wish: Reasoned) -> Pinged:  # noqa: ARG001
    """Send an endpoint a signed test event now, and say how far it got; it is no delivery."""
    return pinging.ping(by, endpoint_id)


def pause_merchant(by: Operator, merchant_id: str, wish: Reasoned) -> Sequence[Endpoint]:  # noqa: ARG001
    """Hold the deliveries of all of a merchant's endpoints until they are resumed."""
    return [masked(each) for each in endpoints.pause_merchant(by, merchant_id, paused=True)]


def resume_merchant(by: Operator, merchant_id: str, wish: Reasoned) -> Sequence[Endpoint]:  # noqa: ARG001
    """Let the deliveries of all of a merchant's endpoints go again."""
    return [masked(each) for each in endpoints.pause_merchant(by, merchant_id, paused=False)]


def note_failures(by: Operator, wish: Noted) -> Sequence[Verdict]:
    """Write something down about failed deliveries, which count as seen from then on."""
    return desk.note(by, wish.delivery_ids, wish.text)


def replay_failures(by: Operator, wish: Named) -> Sequence[Verdict]:
    """Send failed deliveries again."""
    return desk.replay(by, wish.delivery_ids)


def dismiss_failures(by: Operator, wish: Named) -> Sequence[Verdict]:
    """Take failed deliveries off the desk, as dealt with; each stays failed."""
    return desk.dismiss(by, wish.delivery_ids)


def reopen_failures(by: Operator, wish: Named) -> Sequence[Verdict]:
    """Put dismissed deliveries back on the desk: they were not dealt with."""
    return desk.reopen(by, wish.delivery_ids)


def replay_group(by: Operator, wish: GroupMeant) -> Worked:
    """Send again what is on the desk of one merchant for one reason, up to 2,000 at a time."""
    return _worked(desk.replay_all(by, OnDesk(merchant_id=wish.merchant_id, reason=wish.reason)))


def dismiss_group(by: Operator, wish: GroupMeant) -> Worked:
    """Take off the desk what is on it of one merchant for one reason, up to 2,000 at a time."""
    return _worked(desk.dismiss_all(by, OnDesk(merchant_id=wish.merchant_id, reason=wish.reason)))


def _worked(batches: Iterator[Sequence[Verdict]]) -> Worked:
    verdicts = list(islice(batches, _BATCHES))
    went = sum(len(deliveries.done(batch)) for batch in verdicts)
    return Worked(went, sum(map(len, verdicts)) - went, more=len(verdicts) == _BATCHES)


def _group(what: str, worked: Worked) -> str:
    refused = f"; {worked.refused} could not be" if worked.refused else ""
    return f"{worked.done} {what}{refused}" + ("; there may be more: do it again" if worked.more else "")


def _verdicts(what: str, verdicts: Sequence[Verdict]) -> str:
    went = [each for each in verdicts if each.refused is None]
    said = [f"{len(went)} {what}"] if went else []
    said += [f"{each.delivery_id}: {each.refused or each.note}" for each in verdicts if each.refused or each.note]
    more = len(said) - _TOLD
    return "; ".join(said[:_TOLD]) + (f"; and {more} more" if more > 0 else "")


def _event(came: EventReplay) -> str:
    going = len(came.resent) + len(came.begun)
    left = f"; {len(came.left)} left alone" if came.left else ""
    return f"{came.event_id}: {going} deliveries are being sent{left}"


def _reset(done: Reset) -> str:
    stay = f"; {done.held} stay held for {done.stay_for}" if done.stay_for and done.held else ""
    return f"{done.endpoint_id}: working; {done.released} held deliveries are being released{stay}"


def _pinged(pinged: Pinged) -> str:
    said = (f"{pinged.endpoint_id}: {'fine' if pinged.fine else 'NOT FINE'}: {pinged.found}", pinged.advice)
    return "; ".join(filter(None, said))


def _paused(*changed: Endpoint) -> str:
    return ", ".join(f"{each.id} is paused" if each.paused_at else f"{each.id} goes on" for each in changed)


ACTS: tuple[Operation, ...] = (
    act("/deliveries/replay", replay_deliveries, lambda done: _verdicts("are being sent again", done)),
    act("/deliveries/cancel", cancel_deliveries, lambda done: _verdicts("are cancelled", done)),
    act("/events/{event_id}/replay", replay_event, _event),
    act("/failures/note", note_failures, lambda done: _verdicts("are noted", done)),
    act("/failures/replay", replay_failures, lambda done: _verdicts("are being sent again", done)),
    act("/failures/dismiss", dismiss_failures, lambda done: _verdicts("are dismissed", done)),
    act("/failures/reopen", reopen_failures, lambda done: _verdicts("are back on the desk", done)),
    act("/desk/replay", replay_group, lambda worked: _group("are being sent again", worked)),
    act("/desk/dismiss", dismiss_group, lambda worked: _group("are dismissed", worked)),
    act("/endpoints/{endpoint_id}/reset-breaker", reset_breaker, _reset),
    act("/endpoints/{endpoint_id}/ping", ping_endpoint, _pinged),
    act("/endpoints/{endpoint_id}/pause", pause_endpoint, _paused),
    act("/endpoints/{endpoint_id}/resume", resume_endpoint, _paused),
    act("/merchants/{merchant_id}/pause", pause_merchant, lambda done: _paused(*done)),
    act("/merchants/{merchant_id}/resume", resume_merchant, lambda done: _paused(*done)),
)
