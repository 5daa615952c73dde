"""Ways to break what an endpoint has of its own: secret, headers, filter, breaker and limits; and its removal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import select, text

from tests.faults.addressees import ADDRESSEES
from webhooks.gate.gate import Gate
from webhooks.ledger import routing
from webhooks.ledger.backlog import Backlog, HeldEndpoints
from webhooks.ledger.ledger import Ledger
from webhooks.ledger.recording import Recording
from webhooks.ledger.tables import events
from webhooks.model import NO_LIMITS, Delivery, Limits, Message, Unclaimed, event_of
from webhooks.operating import endpoints as operating


def one_secret_signs_for_all() -> None:
    """Whatever goes to a merchant is signed with the secret of one of its endpoints."""
    claim, secrets = Ledger.claim, dict[str, str]()

    def claim_with_one_secret(self: Ledger, message: Message) -> Delivery | Unclaimed:
        claimed = claim(self, message)
        if isinstance(claimed, Delivery):
            return replace(claimed, secret=secrets.setdefault(claimed.merchant_id, claimed.secret))
        return claimed

    Ledger.claim = claim_with_one_secret  # type: ignore[method-assign]


def own_headers_are_shared() -> None:
    """A merchant's endpoints get each other's own headers."""
    claim, headers = Ledger.claim, dict[str, dict[str, str]]()

    def claim_with_all_headers(self: Ledger, message: Message) -> Delivery | Unclaimed:
        claimed = claim(self, message)
        if isinstance(claimed, Delivery):
            shared = headers.setdefault(claimed.merchant_id, {})
            shared.update(claimed.headers)
            return replace(claimed, headers={**shared, **claimed.headers})
        return claimed

    Ledger.claim = claim_with_all_headers  # type: ignore[method-assign]


def filters_are_ignored() -> None:
    """An event goes to every endpoint of its merchant, whatever that wants."""
    recorded = str(routing.RECORD)
    routing.RECORD = text(recorded.replace("endpoints.types IS NULL OR", "true OR"))
    Recording._record = Recording._record_together  # type: ignore[method-assign]


def breakers_are_of_merchants() -> None:
    """The gate is asked about a merchant where it should be asked about an endpoint."""
    call = Gate._call

    def call_for_merchant(self: Gate, endpoint_id: str, limits: Limits, *args: str) -> tuple[Any, ...]:
        return call(self, ADDRESSEES[endpoint_id].merchant_id, limits, *args)

    Gate._call = call_for_merchant  # type: ignore[method-assign]


def lanes_are_all_alike() -> None:
    """An endpoint's own lane is not asked for."""
    call = Gate._call

    def call_without_lane(self: Gate, endpoint_id: str, limits: Limits, *args: str) -> tuple[Any, ...]:
        return call(self, endpoint_id, replace(limits, lane=None), *args)

    Gate._call = call_without_lane  # type: ignore[method-assign]


def rates_are_forgotten() -> None:
    """An endpoint's own rate is not asked for."""
    call = Gate._call

    def call_without_rate(self: Gate, endpoint_id: str, limits: Limits, *args: str) -> tuple[Any, ...]:
        return call(self, endpoint_id, replace(limits, rate=None), *args)

    Gate._call = call_without_rate  # type: ignore[method-assign]


def the_removed_are_remembered() -> None:
    """What was accepted for an endpoint before it was removed is still sent there."""
    claim, known, held = Ledger.claim, dict[str, Delivery](), Backlog.held_endpoints

    def claim_all_the_same(self: Ledger, message: Message) -> Delivery | Unclaimed:
        claimed = claim(self, message)
        if isinstance(claimed, Delivery):
            known[claimed.endpoint_id] = claimed
        elif claimed is Unclaimed.REMOVED and message.endpoint_id in known:
            event_id = event_of(message.id)
            body = self.database.rows(select(events.c.body).where(events.c.id == event_id))[0].body
            once = known[message.endpoint_id]
            return replace(once, id=message.id, event_id=event_id, turn=message.turn, body=bytes(body))
        return claimed

    def held_and_removed(self: Backlog, *page: Any, **options: Any) -> HeldEndpoints:
        found = held(self, *page, **options)
        return replace(found, limits={**found.limits, **dict.fromkeys(found.removed, NO_LIMITS)}, removed=())

    operating.cancel_some = lambda *_: ()  # type: ignore[attr-defined]
    Ledger.claim = claim_all_the_same  # type: ignore[method-assign]
    Backlog.held_endpoints = held_and_removed  # type: ignore[method-assign]


ACTS: tuple[Callable[[], None], ...] = (
    one_secret_signs_for_all,
    own_headers_are_shared,
    filters_are_ignored,
    breakers_are_of_merchants,
    lanes_are_all_alike,
    rates_are_forgotten,
    the_removed_are_remembered,
)
