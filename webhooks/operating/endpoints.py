"""Registering merchants and their endpoints, changing them, pausing them, taking them away."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

from webhooks import parts
from webhooks.accepting.reading import checked_name, is_of_an_endpoint
from webhooks.errors import GateUnavailable, LedgerFault, LedgerUnavailable, NotPossible
from webhooks.ledger.acts import Act
from webhooks.ledger.endpoints import Endpoints, noun, unknown
from webhooks.ledger.removal import cancel_some, count_unfinished
from webhooks.model import ENDPOINT, Changes, Endpoint, Operator, Reason
from webhooks.observing import many
from webhooks.policy.breaker import MOST_IN_FLIGHT
from webhooks.policy.events import checked_wanted
from webhooks.process.spans import in_words
from webhooks.signing import STANDARD_PREFIX
from webhooks.wire.addresses import check_url

LONGEST_NOTE = 500
LOWEST_RATE, HIGHEST_RATE = 0.01, 1000  # attempts a second: one in 100 seconds, and as many as a lane has room for

_IN_WORDS = {
    "url": "address",
    "secret": "secret",
    "standard_headers": "headers",
    "headers": "own headers",
    "types": "types",
    "lane": "lane",
    "rate": "rate",
    "note": "note",
}


@dataclass(frozen=True, slots=True)
class Placed:
    """An endpoint as it stands now. `undone` says what is left to do by hand, where something is."""

    endpoint: Endpoint
    undone: str | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """An endpoint that is no more, and how many of its deliveries ended with it, as cancelled."""

    endpoint_id: str
    merchant_id: str
    cancelled: int


def set_merchant(by: Operator, merchant_id: str, changes: Changes) -> Placed:
    """Register a merchant by its default endpoint, or change that; a new address starts its breaker afresh.

    Raises NotPossible, InvalidAddress, InvalidHeader and, for a type that no event can have, InvalidEvent; then nothing
    has changed.
    """
    changes, known = _checked(changes), parts.endpoints().find(merchant_id)
    placed = _place(by, merchant_id, changes, f"of {merchant_id}", lambda within: within.set(merchant_id, changes))
    return _afresh(placed, changes, known)


def add(by: Operator, merchant_id: str, endpoint_id: str | None, changes: Changes) -> Placed:
    """Add one more endpoint of a merchant, by this id or one that is made; raises as `set_merchant`."""
    if not isinstance(changes.url, str):
        raise NotPossible("an endpoint needs an address; give --url")
    if endpoint_id is not None and not is_of_an_endpoint(endpoint_id):
        raise NotPossible(
            f"an endpoint's id is ep_ and up to 40 of a-z 0-9 . _ -, such as ep_backup; not {endpoint_id!r}"
        )
    changes, chosen = _checked(changes), endpoint_id or new_id()
    what = f"of {chosen}, a new endpoint of {merchant_id}"
    return Placed(_place(by, chosen, changes, what, lambda within: within.add(merchant_id, chosen, changes)))


def change(by: Operator, endpoint_id: str, changes: Changes) -> Placed:
    """Change an endpoint, as `set_merchant` does a merchant's default one; raises NotPossible for an unknown one."""
    changes, known = _checked(changes), parts.endpoints().get(endpoint_id)
    placed = _place(by, endpoint_id, changes, f"of {endpoint_id}", lambda within: within.change(endpoint_id, changes))
    return _afresh(placed, changes, known)


def new_id() -> str:
    """Make the id of an endpoint."""
    return f"{ENDPOINT}{uuid4().hex[:20]}"


def new_secret(endpoint_id: str, standard_headers: bool | None = None) -> str:
    """Make a secret of 256 bits, written as Standard Webhooks wants it where an endpoint has those headers."""
    if standard_headers is None:
        known = parts.endpoints().find(endpoint_id)
        standard_headers = known is not None and known.standard_headers
    if standard_headers:
        return STANDARD_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    return secrets.token_urlsafe(32)


def rotate(by: Operator, endpoint_id: str, secret: str, overlap: timedelta) -> Endpoint:
    """Replace an endpoint's secret; the previous one stays valid for `overlap`. Raises NotPossible."""
    with _act(by, endpoint_id, f"the secret of {endpoint_id} was replaced") as act:
        rotated = parts.endpoints().within(act).rotate(endpoint_id, secret=secret, overlap=overlap)
        act.note(f"rotated the secret of {endpoint_id}, overlap {in_words(overlap) if overlap else 'none'}")
    return rotated


def finish_rotation(by: Operator, endpoint_id: str) -> Endpoint:
    """End the overlap of a rotation now. Raises NotPossible when there is none."""
    with _act(by, endpoint_id, f"the overlap of {endpoint_id} has ended") as act:
        rotated = parts.endpoints().within(act).finish_rotation(endpoint_id)
        act.note(f"ended the overlap of secrets of {endpoint_id}")
    return rotated


def pause(by: Operator, endpoint_id: str, *, paused: bool) -> Endpoint:
    """Hold an endpoint's deliveries from now on, or let them go again, paced. Raises NotPossible for an unknown one."""
    done = "paused" if paused else "resumed"
    with _act(by, endpoint_id, f"{endpoint_id} was {done}") as act:
        changed = parts.endpoints().within(act).pause(endpoint_id, paused=paused)
        act.note(f"{done} {endpoint_id}")
    return changed


def pause_merchant(by: Operator, merchant_id: str, *, paused: bool) -> Sequence[Endpoint]:
    """Hold the deliveries of all of a merchant's endpoints, or let them go again; returns those, by id.

    Raises NotPossible for a merchant without any.
    """
    done = "paused" if paused else "resumed"
    with _act(by, merchant_id, f"{merchant_id} was {done}") as act:
        within = parts.endpoints().within(act)
        changed = [within.pause(each.id, paused=paused) for each in within.of(merchant_id)]
        if not changed:
            raise unknown(merchant_id)
        others = [each.id for each in changed if each.id != merchant_id]
        act.note(f"{done} {merchant_id}" + (f", with {', '.join(others)}" if others else ""))
    return changed


def count_going(endpoint_id: str) -> int:
    """Return how many deliveries would end if an endpoint were removed now. Raises NotPossible for an unknown one."""
    parts.endpoints().get(endpoint_id)
    return count_unfinished(parts.database(), endpoint_id)


def remove(by: Operator, endpoint_id: str) -> Removed:
    """Take an endpoint away for good: nothing is sent to it any more, and its unfinished deliveries end as cancelled.

    What is being sent at this moment may still arrive. Raises NotPossible for an unknown one. Once it is removed its
    deliveries end whatever comes: what is raised then says so, and the sweep and the workers see to the rest.
    """
    with _act(by, endpoint_id, f"{endpoint_id} was removed") as act:
        within = parts.endpoints().within(act)
        known = within.get(endpoint_id)
        within.remove(endpoint_id)
        act.note(f"removed {endpoint_id}" + ("" if endpoint_id == known.merchant_id else f" of {known.merchant_id}"))
    with suppress(GateUnavailable):
        parts.gate().reset(endpoint_id)  # there is nothing left to tell of it
    return Removed(endpoint_id, known.merchant_id, _end_deliveries(by, endpoint_id))


def _checked(changes: Changes) -> Changes:
    """Refuse what an endpoint cannot have, whoever asks; its secret and headers are the ledger's to check."""
    if isinstance(changes.url, str):
        rules = parts.sending_rules()
        check_url(changes.url, allow_http=rules.allow_http, guard=rules.guard)
    if isinstance(changes.lane, int) and not 1 <= changes.lane <= MOST_IN_FLIGHT:
        raise NotPossible(f"a lane has room for 1 to {MOST_IN_FLIGHT} deliveries at once")
    if isinstance(changes.rate, int | float) and not LOWEST_RATE <= changes.rate <= HIGHEST_RATE:
        raise NotPossible(f"a rate is {LOWEST_RATE} to {HIGHEST_RATE} attempts a second")
    if isinstance(changes.note, str):
        check_note(changes.note)
    if not isinstance(changes.types, tuple):
        return changes
    return replace(changes, types=checked_wanted(checked_name("type", each) for each in changes.types))


def check_note(text: str) -> None:
    """Raise NotPossible for what is no note."""
    if not (text.isprintable() and text.strip() and len(text) <= LONGEST_NOTE):
        raise NotPossible(f"a note has 1 to {LONGEST_NOTE} printable characters")


def _place(
    by: Operator, endpoint_id: str, changes: Changes, what: str, place: Callable[[Endpoints], Endpoint]
) -> Endpoint:
    look = _look(endpoint_id)
    if isinstance(changes.url, str):
        look += f", and where it has the new address run: webhooks breaker reset {endpoint_id}"
    with parts.act(by, f"{endpoint_id} was set", look) as act:
        placed = place(parts.endpoints().within(act))
        act.note(f"set {', '.join(_IN_WORDS[name] for name in changes.names)} {what}")
    return placed


def _afresh(placed: Endpoint, changes: Changes, known: Endpoint | None) -> Placed:
    """Close the breaker that failures of the previous address moved. What was set stays set when the gate is away."""
    if not isinstance(changes.url, str) or (known and known.url == changes.url):
        return Placed(placed)
    try:
        parts.gate().reset(placed.id)
    except GateUnavailable as error:
        return Placed(
            placed,
            f"{placed.id} is set, but its breaker stands as before: {error}; "
            f"once that is mended, run: webhooks breaker reset {placed.id}",
        )
    return Placed(placed)


def _end_deliveries(by: Operator, endpoint_id: str) -> int:
    """End what is unfinished, batch by batch, each with its lines in the audit."""
    number = 0
    try:
        while ended := _end_some(by, endpoint_id):
            number += len(ended)
    except (LedgerUnavailable, LedgerFault) as error:
        raise type(error)(
            f"{endpoint_id} is removed; {number} of its deliveries have ended, the others end as they come up ({error})"
        ) from error
    return number


def _end_some(by: Operator, endpoint_id: str) -> Sequence[str]:
    with parts.act(by, "the last of its deliveries were cancelled", "webhooks audit") as act:
        ended = cancel_some(act, endpoint_id)
        act.note_deliveries(f"removal of {endpoint_id}: cancelled", ended)
    if ended:
        parts.observers().tell(many.EndedApart(tuple(ended), Reason.CANCELLED))
    return ended


def _act(by: Operator, endpoint_id: str, unsure: str) -> AbstractContextManager[Act]:
    return parts.act(by, unsure, _look(endpoint_id))


def _look(endpoint_id: str) -> str:
    return f"webhooks {noun(endpoint_id)} show {endpoint_id}"
