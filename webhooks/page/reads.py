"""What can be asked here: reads of the ledger and the gate, each bounded, as operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from webhooks import parts
from webhooks.gate.values import Breaker
from webhooks.health.asking import Fault
from webhooks.ledger.answering import Performance
from webhooks.ledger.counting import Standing
from webhooks.ledger.desk import Dealings, FailedRow, Groups, Numbers, OnDesk
from webhooks.ledger.finding import Found
from webhooks.ledger.pacing import Pace
from webhooks.ledger.rows import AttemptRow, AuditRow, DeliveryRow, EventRow, History, Page, RefusalRow
from webhooks.ledger.views import Wanted
from webhooks.model import Endpoint, HeldFor, Reason, State
from webhooks.operating import looking
from webhooks.operating.looking import Next
from webhooks.page.masking import masked
from webhooks.page.operations import Operation, look
from webhooks.page.overview import look_around
from webhooks.page.rounds import QueueSeen, WorkerSeen
from webhooks.page.typed import Code, Id, Lines, Number, Optional, When


@dataclass(frozen=True, slots=True)
class ListedDeliveries:
    """Which deliveries to list: `since` and `until` are of the acceptance, `answer` is the status of the latest one."""

    merchant_id: Optional = None
    endpoint_id: Optional = None
    state: State | None = None
    held_for: HeldFor | None = None
    reason: Reason | None = None
    type: Optional = None
    money: bool | None = None
    answer: Code | None = None
    since: When | None = None
    until: When | None = None
    limit: Lines = 50
    after: Optional = None


@dataclass(frozen=True, slots=True)
class ListedFailures:
    """Which failed deliveries to list; `all`: also what was dealt with already."""

    merchant_id: Optional = None
    reason: Reason | None = None
    money: bool | None = None
    failed_before: When | None = None
    all: bool = False
    limit: Lines = 50
    after: Optional = None


@dataclass(frozen=True, slots=True)
class Sought:
    """A value that support has in hand: a payment's id, a merchant's own number, the id of the event."""

    value: Id
    limit: Lines = 50


@dataclass(frozen=True, slots=True)
class Further:
    """How many lines, from the one on that comes behind `after`."""

    limit: Lines = 50
    after: Optional = None


@dataclass(frozen=True, slots=True)
class FurtherNumbered:
    """How many lines, from the one on that comes behind the one with this number."""

    limit: Lines = 50
    after: Number | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """How all parts are, and how all deliveries stand; what could not be asked is None, and a fault says why."""

    faults: Sequence[Fault]
    ledger: Standing | None
    desk: Numbers | None
    breakers_not_working: Sequence[Breaker] | None
    sweep_ago: timedelta | None
    queues: Sequence[QueueSeen]
    workers: Sequence[WorkerSeen]


@dataclass(frozen=True, slots=True)
class DeliveryShown:
    """A delivery with its attempts, what people had to do with it, and what comes next."""

    delivery: DeliveryRow
    attempts: Sequence[AttemptRow]
    note: str | None
    dealings: Dealings
    next: Next


@dataclass(frozen=True, slots=True)
class EventShown:
    """An event, and its delivery to each endpoint that wanted it."""

    event: EventRow
    deliveries: Sequence[DeliveryRow]


@dataclass(frozen=True, slots=True)
class MerchantShown:
    """A merchant with all its endpoints; none where it is not registered."""

    merchant_id: str
    endpoints: Sequence[Endpoint]
    performance: Performance


@dataclass(frozen=True, slots=True)
class EndpointShown:
    """An endpoint with all that is known of it; `breaker` is None while the gate is away, as `gate` says."""

    endpoint: Endpoint
    breaker: Breaker | None
    gate: str | None
    performance: Performance
    last: Sequence[AttemptRow]


@dataclass(frozen=True, slots=True)
class DeskShown:
    """How much is on the desk, and what, by merchant and reason."""

    numbers: Numbers
    groups: Groups


def show_status() -> Status:
    """Say how all parts are and how all deliveries stand; takes up to a second, in which the workers are heard."""
    found = look_around(wait=True)
    return Status(
        faults=found.faults,
        ledger=found.ledger,
        desk=found.desk,
        breakers_not_working=found.breakers,
        sweep_ago=found.seen.sweep_ago,
        queues=found.seen.queues,
        workers=found.seen.workers,
    )


def show_pace() -> Pace:
    """Say what went through of late: the last minute, the last hour by the minute, the last day by five."""
    return parts.views().pace()


def list_deliveries(wish: ListedDeliveries) -> Page[DeliveryRow, str]:
    """List deliveries, the newest first."""
    wanted = Wanted(**{field.name: getattr(wish, field.name) for field in fields(Wanted)})
    return parts.views().deliveries(wanted, wish.limit, wish.after)


def find_deliveries(wish: Sought) -> Sequence[Found]:
    """Find deliveries by what support has in hand: payment_id, external_id, or the event's id."""
    return parts.views().find(wish.value, wish.limit)


def show_delivery(delivery_id: str) -> DeliveryShown:
    """Show a delivery with all its attempts, what was noted about it, and what comes next."""
    trail = looking.delivery(delivery_id)
    history: History = trail.history
    dealings = parts.desk().dealings(delivery_id)
    return DeliveryShown(history.delivery, history.attempts, history.note, dealings, trail.next)


def show_event(event_id: str) -> EventShown:
    """Show an event, without its body, and what has become of it at each endpoint that wanted it."""
    return EventShown(parts.views().event(event_id), parts.views().of_event(event_id))


def list_endpoints(wish: Further) -> Page[Endpoint, str]:
    """List the endpoints of all merchants by id; a default endpoint has its merchant's id."""
    page = parts.endpoints().some(wish.limit, wish.after)
    return replace(page, items=[masked(each) for each in page.items])


def show_merchant(merchant_id: str) -> MerchantShown:
    """Show a merchant, its endpoints, and how they did of late."""
    found = [masked(each) for each in parts.endpoints().of(merchant_id)]
    if not found:
        parts.views().holding(merchant_id)  # which says that nobody has heard of it
    return MerchantShown(merchant_id, found, parts.views().performance_of(merchant_id))


def show_endpoint(endpoint_id: str) -> EndpointShown:
    """Show an endpoint with its breaker, how it did of late, and its last answers."""
    found = looking.endpoint(endpoint_id)
    return EndpointShown(masked(found.endpoint), found.breaker, found.gate, found.performance, found.last)


def list_breakers() -> Sequence[Breaker]:
    """List the breakers that have something to tell."""
    return parts.gate().list()


def show_desk() -> DeskShown:
    """Say what failed and needs a person, by merchant and reason, money first."""
    return DeskShown(parts.desk().numbers(), parts.desk().groups())


def list_failures(wish: ListedFailures) -> Page[FailedRow, str]:
    """List failed deliveries, money first, then the newest."""
    wanted = OnDesk(**{field.name: getattr(wish, field.name) for field in fields(OnDesk)})
    return parts.desk().deliveries(wanted, wish.limit, wish.after)


def list_audit(wish: FurtherNumbered) -> Page[AuditRow, int]:
    """List what operators did by hand, the latest first."""
    return parts.audit().latest(wish.limit, wish.after)


def list_refused(wish: FurtherNumbered) -> Page[RefusalRow, int]:
    """List events by task name that were refused, the latest first: their producers heard nothing."""
    return parts.refusals().latest(wish.limit, wish.after)


READS: tuple[Operation, ...] = (
    look("/status", show_status),
    look("/pace", show_pace),
    look("/deliveries", list_deliveries),
    look("/deliveries/{delivery_id}", show_delivery),
    look("/find", find_deliveries),
    look("/events/{event_id}", show_event),
    look("/endpoints", list_endpoints),
    look("/endpoints/{endpoint_id}", show_endpoint),
    look("/merchants/{merchant_id}", show_merchant),
    look("/breakers", list_breakers),
    look("/desk", show_desk),
    look("/failures", list_failures),
    look("/audit", list_audit),
    look("/refused", list_refused),
)
