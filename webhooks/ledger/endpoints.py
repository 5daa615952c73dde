"""Where events go: the only place that writes an address, a secret or a header of an endpoint's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from cryptography.fernet import MultiFernet
from sqlalchemy import ColumnElement, Row, case, func, null, select, true
from sqlalchemy.dialects.postgresql import insert

from webhooks.accepting.reading import is_of_an_endpoint
from webhooks.errors import NotPossible
from webhooks.ledger.acts import Rows
from webhooks.ledger.rows import Page
from webhooks.ledger.tables import endpoints
from webhooks.model import KEEP, Changes, Endpoint
from webhooks.policy.headers import as_read, check_number, checked_headers
from webhooks.signing import standard_key

LONGEST_OVERLAP = timedelta(days=30)  # by then every delivery from before the rotation has ended

_OVERLAPS = endpoints.c.previous_until > func.now()

_IS_THERE = endpoints.c.removed_at.is_(None)

_SHOWN = (
    *endpoints.c["id", "merchant_id", "url"],
    endpoints.c.secret.is_not(None).label("has_secret"),
    case((_OVERLAPS, endpoints.c.previous_until)).label("previous_secret_until"),
    *endpoints.c["standard_headers", "headers", "types", "lane", "rate", "note"],
    *endpoints.c["paused_at", "created_at", "updated_at"],
)

# Of a removed endpoint its id is left, so that what was accepted for it finds out, and nobody else gets the id.
_WIPED: dict[str, Any] = {
    **dict.fromkeys(("url", "secret", "previous_secret", "previous_until")),
    **dict.fromkeys(("types", "lane", "rate", "note", "paused_at")),
    "standard_headers": False,
    "headers": {},
}

_ANEW = {"removed_at": None, "created_at": func.now()}


class Endpoints:
    """The endpoints of all merchants; secrets go in and never come out."""

    def __init__(self, database: Rows, cipher: MultiFernet) -> None:
        self._database = database
        self._cipher = cipher

    def within(self, act: Rows) -> Endpoints:
        """Return the same, with every change a part of an operator's act."""
        return Endpoints(act, self._cipher)

    def set(self, merchant_id: str, changes: Changes) -> Endpoint:
        """Register a merchant by its default endpoint, or change that. A new secret counts alone, and at once.

        Raises NotPossible when an address would stand without a secret, since every POST is signed, and for an unknown
        merchant that is given neither.
        """
        if self.find(merchant_id) or (changes.url in {None, KEEP} and changes.secret is KEEP):
            return self.change(merchant_id, changes)
        _check_secret(merchant_id, None, changes)
        values = self._values_of(changes, {})
        rows = self._database.rows(
            insert(endpoints)
            .values(id=merchant_id, merchant_id=merchant_id, **values)
            .on_conflict_do_update(index_elements=["id"], set_={**values, **_ANEW}, where=~_IS_THERE)
            .returning(*_SHOWN)
        )
        return _endpoint(rows[0]) if rows else self.change(merchant_id, changes)  # somebody else was faster

    def add(self, merchant_id: str, endpoint_id: str, changes: Changes) -> Endpoint:
        """Add one more endpoint of a merchant, which need not have a default one.

        Raises NotPossible for an id that there is, or was: events and messages name it for as long as they are kept.
        """
        _check_secret(endpoint_id, None, changes)
        rows = self._database.rows(
            insert(endpoints)
            .values(id=endpoint_id, merchant_id=merchant_id, **self._values_of(changes, {}))
            .on_conflict_do_nothing()
            .returning(*_SHOWN)
        )
        if not rows:
            raise NotPossible(self._why_taken(endpoint_id))
        return _endpoint(rows[0])

    def change(self, endpoint_id: str, changes: Changes) -> Endpoint:
        """Change an endpoint. Raises NotPossible for one that is not there, and as `set`."""
        _check_secret(endpoint_id, self.get(endpoint_id), changes)
        return self._update(endpoint_id, **self._values_of(changes, self._locked_headers(endpoint_id, changes)))

    def rotate(self, endpoint_id: str, *, secret: str, overlap: timedelta) -> Endpoint:
        """Replace an endpoint's secret; the previous one stays valid for `overlap`, which may be 0.

        Raises NotPossible while an earlier overlap lasts: a third secret would cut off whoever still holds the first.
        Without an overlap it replaces both at once.
        """
        if not timedelta() <= overlap <= LONGEST_OVERLAP:
            raise NotPossible(f"an overlap lasts from 0 to {LONGEST_OVERLAP.days}d")
        free = func.coalesce(endpoints.c.previous_until <= func.now(), True)
        rows = self._database.rows(
            endpoints.update()
            .where(
                endpoints.c.id == endpoint_id,
                _IS_THERE,
                endpoints.c.secret.is_not(None),
                free if overlap else true(),
            )
            .values(
                secret=self._encrypted(_checked_secret(secret)),
                previous_secret=endpoints.c.secret if overlap else null(),
                previous_until=func.now() + overlap if overlap else null(),
                updated_at=func.now(),
            )
            .returning(*_SHOWN)
        )
        if not rows:
            raise _why_not_rotated(self.get(endpoint_id))
        return _endpoint(rows[0])

    def finish_rotation(self, endpoint_id: str) -> Endpoint:
        """End an overlap now: the new secret counts alone. Raises NotPossible when there is none."""
        if self.get(endpoint_id).previous_secret_until is None:
            raise NotPossible(f"{endpoint_id} has no overlap to end: its secret counts alone")
        return self._update(endpoint_id, previous_secret=None, previous_until=None)

    def pause(self, endpoint_id: str, *, paused: bool) -> Endpoint:
        """Hold an endpoint's deliveries from now on, or let them go again. Raises NotPossible for an unknown one."""
        return self._update(endpoint_id, paused_at=func.coalesce(endpoints.c.paused_at, func.now()) if paused else None)

    def remove(self, endpoint_id: str) -> None:
        """Take an endpoint away for good: nothing goes there any more, and what it was is forgotten.

        A merchant's default endpoint may be registered again. Raises NotPossible for one that is not there.
        """
        # As late as can be: what is accepted after that, for a merchant without any other, waits for an address.
        self._update(endpoint_id, removed_at=func.clock_timestamp(), **_WIPED)

    def find(self, endpoint_id: str) -> Endpoint | None:
        """Return an endpoint, or None when there is none."""
        found = self._found(endpoints.c.id == endpoint_id)
        return found[0] if found else None

    def get(self, endpoint_id: str) -> Endpoint:
        """Return an endpoint; raises NotPossible when there is none."""
        found = self.find(endpoint_id)
        if found is None:
            raise self.missing(endpoint_id)
        return found

    def missing(self, endpoint_id: str) -> NotPossible:
        """Say that there is no such endpoint, and where it is a merchant's default one, which others there are."""
        others = ", ".join(each.id for each in self.of(endpoint_id))
        if not others:
            return unknown(endpoint_id)
        register = f"webhooks merchant set {endpoint_id} --url https://…"
        return NotPossible(f"{endpoint_id} has no default endpoint; name another, {others}, or register it: {register}")

    def all(self) -> Sequence[Endpoint]:
        """Return every endpoint, by id."""
        return self._found(true())

    def some(self, limit: int, after: str | None = None, merchant_id: str | None = None) -> Page[Endpoint, str]:
        """Return endpoints by id, of one merchant or of all, from the one on that comes behind `after`."""
        behind = true() if after is None else endpoints.c.id > after
        its = true() if merchant_id is None else endpoints.c.merchant_id == merchant_id
        asked = select(*_SHOWN).where(behind, its, _IS_THERE).order_by(endpoints.c.id).limit(limit + 1)
        found = [_endpoint(row) for row in self._database.rows(asked, repeatable=True)]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def of_some(self, limit: int, after: str | None = None) -> Page[Sequence[Endpoint], str]:
        """Return the endpoints of merchants, by their ids, from the merchant on that comes behind `after`."""
        behind = true() if after is None else endpoints.c.merchant_id > after
        asked = select(endpoints.c.merchant_id).distinct().where(behind, _IS_THERE)
        rows = self._database.rows(asked.order_by(endpoints.c.merchant_id).limit(limit + 1), repeatable=True)
        merchants: dict[str, list[Endpoint]] = {row.merchant_id: [] for row in rows[:limit]}
        for each in self.of(*merchants):
            merchants[each.merchant_id].append(each)
        return Page([each for each in merchants.values() if each], [*merchants][-1] if len(rows) > limit else None)

    def of(self, *merchant_ids: str) -> Sequence[Endpoint]:
        """Return the endpoints of a merchant, or of several, by id."""
        return self._found(endpoints.c.merchant_id.in_(merchant_ids))

    def _found(self, which: ColumnElement[bool]) -> list[Endpoint]:
        asked = select(*_SHOWN).where(which, _IS_THERE).order_by(endpoints.c.id)
        return [_endpoint(row) for row in self._database.rows(asked, repeatable=True)]

    def _update(self, endpoint_id: str, **values: Any) -> Endpoint:
        rows = self._database.rows(
            endpoints.update()
            .where(endpoints.c.id == endpoint_id, _IS_THERE)
            .values({"updated_at": func.now(), **values})
            .returning(*_SHOWN)
        )
        if not rows:
            raise self.missing(endpoint_id)
        return _endpoint(rows[0])

    def _values_of(self, changes: Changes, headers: dict[str, str]) -> dict[str, Any]:
        """Return the columns that change; `headers` are those of its own that it has, with encrypted values."""
        values: dict[str, Any] = {
            name: getattr(changes, name)
            for name in ("url", "standard_headers", "types", "lane", "rate", "note")
            if getattr(changes, name) is not KEEP
        }
        if changes.secret is not KEEP:
            secret = self._encrypted(_checked_secret(changes.secret))
            values |= {"secret": secret, "previous_secret": None, "previous_until": None}
        if changes.headers:
            new = checked_headers({name: value for name, value in changes.headers.items() if value is not None})
            encrypted = {name: self._encrypted(value).decode() for name, value in new.items()}
            values["headers"] = _kept(headers, changes) | encrypted
            check_number(values["headers"])
        return {**values, "updated_at": func.now()}

    def _locked_headers(self, endpoint_id: str, changes: Changes) -> dict[str, str]:
        """Return the headers that an endpoint has, which nobody else changes for as long as the act lasts."""
        if not changes.headers:
            return {}
        locked = select(endpoints.c.headers).where(endpoints.c.id == endpoint_id).with_for_update()
        return {name: value for row in self._database.rows(locked) for name, value in row.headers.items()}

    def _encrypted(self, secret: str) -> bytes:
        return self._cipher.encrypt(secret.encode())

    def _why_taken(self, endpoint_id: str) -> str:
        found = self.find(endpoint_id)
        if found is None:
            return f"{endpoint_id} was removed, and no other endpoint may have its id; choose another"
        return f"{endpoint_id} is an endpoint of {found.merchant_id} already; see: webhooks endpoint show {endpoint_id}"


def unknown(endpoint_id: str, *, held: int = 0) -> NotPossible:
    """Say that there is no such endpoint, how many deliveries are held for that, and what to do."""
    if is_of_an_endpoint(endpoint_id):
        return NotPossible(f"no endpoint {endpoint_id}; see: webhooks endpoint list")
    waiting = f", and {held} of its deliveries are held" if held else ""
    return NotPossible(
        f"no merchant {endpoint_id}{waiting}; register it with: webhooks merchant set {endpoint_id} --url https://…"
    )


def noun(endpoint_id: str) -> str:
    """Return with which commands an endpoint is looked at and changed: `endpoint`, or the default one `merchant`."""
    return "endpoint" if is_of_an_endpoint(endpoint_id) else "merchant"


def _check_secret(endpoint_id: str, known: Endpoint | None, changes: Changes) -> None:
    """Refuse an address without a secret, as the table does."""
    has_address = changes.url not in {None, KEEP}
    if has_address and changes.secret is KEEP and not (known and known.has_secret):
        raise NotPossible(f"{endpoint_id} has no secret yet; add --secret or --generate-secret")


def _kept(headers: dict[str, str], changes: Changes) -> dict[str, str]:
    """Return which of its own headers an endpoint keeps as they are; a name counts however it is written.

    Raises NotPossible where one shall go that it does not have; its name is not told, for it may be a value.
    """
    there = {as_read(name) for name in headers}
    if any(value is None and as_read(name) not in there for name, value in changes.headers.items()):
        names = ", ".join(headers) or "none"
        raise NotPossible(f"there is no header of a name that shall go; its own headers are: {names}")
    changed = {as_read(name) for name in changes.headers}
    return {name: value for name, value in headers.items() if as_read(name) not in changed}


def _checked_secret(secret: str) -> str:
    try:
        standard_key(secret)
    except ValueError as error:
        raise NotPossible(str(error)) from None
    return secret


def _why_not_rotated(found: Endpoint) -> NotPossible:
    if not found.has_secret:
        return NotPossible(f"{found.id} has no secret yet; give it one with: webhooks {noun(found.id)} set {found.id}")
    return NotPossible(
        f"{found.id} is in the middle of a rotation, until {found.previous_secret_until:%Y-%m-%d %H:%M:%S} UTC; "
        "end that with --finish, or replace both secrets at once with --overlap 0"
    )


def _endpoint(row: Row[Any]) -> Endpoint:
    types = row.types and tuple(row.types)
    return Endpoint(**{**row._asdict(), "headers": tuple(row.headers), "types": types})
