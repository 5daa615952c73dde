"""The words of the system as values: what a delivery is, how an attempt ended, who is held for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import Enum, StrEnum


class State(StrEnum):
    """Where a delivery stands. `delivered` and `failed` are final, except for an explicit replay (I8)."""

    PENDING = "pending"
    HELD = "held"
    DELIVERED = "delivered"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a delivery is `failed`; nothing fails without one."""

    FAST_EXHAUSTED = "fast_exhausted"
    SLOW_EXHAUSTED = "slow_exhausted"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class HeldFor(StrEnum):
    """What a held delivery waits for. Holding spends no budget."""

    ADDRESS = "address"
    BREAKER = "breaker"
    LANE = "lane"
    RATE = "rate"  # its endpoint gets so many attempts a second
    OPERATOR = "operator"  # its endpoint is paused by hand
    REPLAY = "replay"  # to be sent again, paced like any release


class Ladder(StrEnum):
    """The two ladders; each has its own budget."""

    FAST = "fast"
    SLOW = "slow"


class Outcome(StrEnum):
    """What one attempt came to.

    `unknown`: the worker died, or its machine failed with the request out: nobody can say what the merchant saw (I4).
    """

    DELIVERED = "delivered"
    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    REJECTED = "rejected"
    MISDIRECTED = "misdirected"
    UNSENDABLE = "unsendable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """A final status line and its headers arrived within the deadline.

    `retry_after` is the header as it came, `date` the answer's own `Date` beside it, `redirect_host` the host that a
    3xx points to, `excerpt` the first 2 KiB of the body as clean text. `resent`: the request went out twice, since a
    kept connection closed without a byte, or answered `stale_status`, which says nothing about the request.
    """

    status: int
    retry_after: str | None = None
    redirect_host: str | None = None
    excerpt: str = ""
    resent: bool = False
    stale_status: int | None = None
    date: str | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer came within the deadline; `cause` is a short phrase such as `dns: no such host`.

    `resent` and `stale_status` as in Answer. `ours`: it was this machine that failed once the request was out.
    """

    cause: str
    resent: bool = False
    stale_status: int | None = None
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Our own guard refused the address, so nothing was sent; `cause` says which rule."""

    cause: str


_TO = "~"  # in no event's id
ENDPOINT = "ep_"
"""With this the id of every endpoint begins, but for a merchant's default one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an endpoint asks for itself; None where it asks for nothing.

    `lane` is how many of its deliveries may be in flight at once, `rate` how many attempts it gets in a second.
    """

    lane: int | None = None
    rate: float | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Message:
    """What a Celery message says: look at this delivery now.

    `turn` tells a stale message from a live one. `queued_at` is when it was published, by the ledger's clock. `slot` is
    the gate's permission to pass although the endpoint's other deliveries are held: the message carries a probe or a
    release. `limits` are the endpoint's own. `slow`: it travels in the queue of the slow endpoints. `may_wait`: first
    tries of others go before it. `retries` counts the attempts before, for people to see.
    """

    id: str
    merchant_id: str
    type: str
    turn: int
    queued_at: datetime
    slot: str | None = None
    limits: Limits = NO_LIMITS
    slow: bool = False
    may_wait: bool = False
    retries: int = 0

    @property
    def endpoint_id(self) -> str:
        """Where the delivery goes, which its id says."""
        return endpoint_of(self.id, self.merchant_id)


def delivery_id_of(event_id: str, merchant_id: str, endpoint_id: str) -> str:
    """Return the id of an event's delivery to an endpoint: its own, at the default endpoint."""
    return event_id if endpoint_id == merchant_id else f"{event_id}{_TO}{endpoint_id}"


def event_of(delivery_id: str) -> str:
    """Return the id of a delivery's event."""
    return delivery_id.partition(_TO)[0]


def endpoint_of(delivery_id: str, merchant_id: str) -> str:
    """Return the id of a delivery's endpoint."""
    return delivery_id.partition(_TO)[2] or merchant_id


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery that this worker has claimed for one attempt. `number` counts its attempts from 1.

    `headers` are the endpoint's own, name to value, which may be secret; `limits` are its own, too.
    """

    id: str
    event_id: str
    merchant_id: str
    endpoint_id: str
    type: str
    turn: int
    number: int
    started_at: datetime
    due_at: datetime
    money: bool
    expires_at: datetime
    fast_spent: int
    slow_spent: int
    slow_since: datetime | None
    url: str
    secret: str = field(repr=False)
    body: bytes = field(repr=False)
    previous_secret: str | None = field(default=None, repr=False)  # only while it is still valid
    standard_headers: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = NO_LIMITS


class Unclaimed(StrEnum):
    """Why a message leads to no attempt."""

    STALE = "stale"  # another message or worker was faster, or the delivery is final or past its age
    UNKNOWN = "unknown"  # nothing of this id was ever accepted: it is another ledger's
    NO_ADDRESS = "no address"
    PAUSED = "paused"  # its endpoint, by an operator
    REMOVED = "removed"  # its endpoint, by an operator, after it was accepted


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as it is written down; `ladder` is the one that was charged, if any."""

    number: int
    started_at: datetime
    duration: timedelta | None
    outcome: Outcome
    status: int | None = None
    cause: str | None = None
    excerpt: str | None = None
    ladder: Ladder | None = None
    probe: bool = False


class Written(StrEnum):
    """What it came to that an attempt was written down."""

    IN_TIME = "in time"  # it counts, and what follows from it
    LATE = "late"  # somebody else has the delivery, or it has ended: what was unknown of the attempt is filled in
    LAST = "late, and last"  # as late, but its 2xx has ended what still waited


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where events of a merchant go, without secrets.

    The default endpoint's id is the merchant's. `url` is its address, if it has one; `previous_secret_until` is set
    while a rotation's overlap lasts; `headers` are the names of its own headers; `types` are the events that it wants,
    exact ones and such as `payment.*`, None for all; `lane` is how many of its deliveries may be in flight at once,
    None for the general number; `rate` is how many attempts it gets in a second, None for as many as there are.
    """

    id: str
    merchant_id: str
    url: str | None
    has_secret: bool
    previous_secret_until: datetime | None
    standard_headers: bool
    headers: tuple[str, ...]
    types: tuple[str, ...] | None
    lane: int | None
    rate: float | None
    note: str | None
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Operator:
    """Who does something by hand, and why."""

    name: str
    why: str | None = None


class Keep(Enum):
    """Says of a fact that it stays as it is."""

    KEEP = "keep"


KEEP = Keep.KEEP


@dataclass(frozen=True, slots=True)
class Changes:
    """What changes of an endpoint, in the words of `Endpoint`; None takes away what may be missing.

    `headers` are those of its own that change, name to value, None for those that go; values may be secrets.
    """

    url: str | Keep | None = KEEP
    secret: str | Keep = field(default=KEEP, repr=False)
    standard_headers: bool | Keep = KEEP
    headers: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    types: tuple[str, ...] | Keep | None = KEEP
    lane: int | Keep | None = KEEP
    rate: float | Keep | None = KEEP
    note: str | Keep | None = KEEP

    @property
    def names(self) -> list[str]:
        """The fields that change."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return [name for name, value in values.items() if value is not KEEP and value != {}]
