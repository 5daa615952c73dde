"""The drill's endpoints: each answers by its role, and keeps a book of what it saw and what it said."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.faults.addressees import ADDRESSEES, PROTECTED
from tests.merchant import Merchant, Reply, Request, Reset, Stall, TestCA
from webhooks.model import delivery_id_of

DOOMED = "doomed-"  # how the ids of deliveries begin that the drill deletes while they are sent
LONGER_THAN_THE_DEADLINE = 4.0  # seconds
_HANGS = 0.2  # of the attempts during an outage

RESET = 0  # in the book, for a connection that was reset instead of answered

Role = Callable[[Request, int], int | Reply]


@dataclass(frozen=True, slots=True)
class Visit:
    """One POST as an endpoint saw it; `status` is 0 for a reset, `until` when the answer was due to leave."""

    endpoint_id: str
    request: Request
    status: int
    until: datetime

    @property
    def id(self) -> str:
        """The delivery's id: the request says the event's, and not where it has come to."""
        merchant_id = ADDRESSEES[self.endpoint_id].merchant_id
        return delivery_id_of(str(self.request.webhook_id), merchant_id, self.endpoint_id)

    @property
    def attempt(self) -> int:
        """The attempt's number, as the request says it."""
        return int(self.request.header("X-Webhook-Attempt") or 0)

    @property
    def received(self) -> bool:
        """Whether the endpoint said that it has it."""
        return 200 <= self.status < 300


class Book:
    """What all endpoints saw, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._visits: list[Visit] = []
        self._seen: dict[tuple[str, str], int] = {}

    @property
    def visits(self) -> list[Visit]:
        """Every POST so far."""
        with self._lock:
            return list(self._visits)

    def in_mid_post(self) -> list[str]:
        """Return the deliveries that are waiting for an answer now, and will be for a while."""
        now = datetime.now(UTC)
        with self._lock:
            recent = self._visits[-200:]
        return [
            visit.id
            for visit in recent
            if (now - visit.request.at).total_seconds() > 0.1 and (visit.until - now).total_seconds() > 0.3
        ]

    def keep(self, endpoint_id: str, role: Role) -> Callable[[Request], int | Reply]:
        """Make an `answer_with` callable that writes down each POST and its answer."""

        def answer(request: Request) -> int | Reply:
            delivery = (endpoint_id, str(request.webhook_id))
            with self._lock:
                self._seen[delivery] = before = self._seen.get(delivery, 0) + 1
            reply = role(request, before)
            status, after = (reply, 0.0) if isinstance(reply, int) else (reply.status, reply.after)
            if isinstance(reply, Reply) and reply.steps is not None:
                status = RESET
            until = datetime.fromtimestamp(request.at.timestamp() + after, UTC)
            with self._lock:
                self._visits.append(Visit(endpoint_id, request, status, until))
            return reply

        return answer


class Cast:
    """The endpoints by id; `down` is set while those with an outage have it, `dead` once one is dead for good."""

    def __init__(self, ca: TestCA, seed: int) -> None:
        self._ca = ca
        self._seed = seed
        self.down = threading.Event()
        self.dead = threading.Event()
        self.book = Book()
        self.roles: dict[str, Role] = {
            "fast": lambda _request, _seen: 200,
            "swift": lambda _request, _seen: 204,
            "slow": self._slow,
            "flaky": self._flaky,
            "outage": self._outage,
            "strict": self._strict,
            "double": lambda _request, _seen: 200,
            "ep_double": self._outage,
            PROTECTED: lambda _request, _seen: 200,
            "leaving": lambda _request, _seen: 202,
            "ep_leaving": self._dead,
            "ep_slow_side": self._slow,
            "ep_flaky_side": self._flaky,
        }

    def start(self, endpoint_id: str) -> Merchant:
        """Start one of them."""
        merchant = Merchant(self._ca)
        merchant.answer_with(self.book.keep(endpoint_id, self.roles[endpoint_id]))
        return merchant

    def luck(self, delivery_id: str, seen: int) -> float:
        """Return a number below 1, the same for the same delivery and visit under the same seed."""
        return random.Random(f"{self._seed}/{delivery_id}/{seen}").random()

    def _slow(self, request: Request, seen: int) -> Reply:
        delivery_id = str(request.webhook_id)
        return Reply(200, after=1.5 if delivery_id.startswith(DOOMED) else 0.3 + 1.2 * self.luck(delivery_id, seen))

    def _flaky(self, request: Request, seen: int) -> int | Reply:
        if self.luck(str(request.webhook_id), 0) < 0.02:
            return 500  # this one is never taken
        luck = self.luck(str(request.webhook_id), seen)
        if luck < 0.05:
            return Reply.raw(Reset())
        if luck < 0.1:
            return Reply(429, headers=[("Retry-After", "1")])
        return 503 if luck < 0.3 else 200

    def _outage(self, request: Request, seen: int) -> int | Reply:
        return self._away(request, seen) if self.down.is_set() else 200

    def _dead(self, request: Request, seen: int) -> int | Reply:
        return self._away(request, seen) if self.dead.is_set() else 200

    def _away(self, request: Request, seen: int) -> int | Reply:
        luck = self.luck(str(request.webhook_id), seen)
        if luck < _HANGS:
            return Reply.raw(Stall(LONGER_THAN_THE_DEADLINE), Reset())
        return Reply.raw(Reset()) if luck < 0.5 else 503

    def _strict(self, request: Request, seen: int) -> int:
        luck = self.luck(str(request.webhook_id), 0)
        if luck < 0.1:
            return 422  # never right
        return 404 if luck < 0.4 and seen <= 2 else 200
