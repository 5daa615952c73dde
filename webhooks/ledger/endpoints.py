"""Where merchants are registered: the only place that writes an address or a secret."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from cryptography.fernet import MultiFernet
from sqlalchemy import Row, case, func, null, select, true
from sqlalchemy.dialects.postgresql import insert

from webhooks.errors import NotPossible
from webhooks.ledger.acts import Rows
from webhooks.ledger.tables import endpoints
from webhooks.model import Endpoint
from webhooks.signing import standard_key

LONGEST_OVERLAP = timedelta(days=30)  # by then every delivery from before the rotation has ended

_OVERLAPS = endpoints.c.previous_until > func.now()

_IS_THERE = endpoints.c.removed_at.is_(None)

_SHOWN = (
    endpoints.c.id,
    endpoints.c.merchant_id,
    endpoints.c.url,
    endpoints.c.secret.is_not(None).label("has_secret"),
    case((_OVERLAPS, endpoints.c.previous_until)).label("previous_secret_until"),
    endpoints.c.standard_headers,
    endpoints.c.headers,
    endpoints.c.types,
    endpoints.c.lane,
    endpoints.c.note,
    endpoints.c.paused_at,
    endpoints.c.created_at,
    endpoints.c.updated_at,
)


class Endpoints:
    """The registered merchants; secrets go in and never come out."""

    def __init__(self, database: Rows, cipher: MultiFernet) -> None:
        self._database = database
        self._cipher = cipher

    def within(self, act: Rows) -> Endpoints:
        """Return the same, with every change a part of an operator's act."""
        return Endpoints(act, self._cipher)

    def set(
        self,
        merchant_id: str,
        *,
        url: str | None,
        secret: str | None,
        no_url: bool = False,
        standard_headers: bool | None = None,
    ) -> Endpoint:
        """Register a merchant or change it; what is None stays as it was. A new secret counts alone, and at once.

        `no_url` takes its address away. Raises NotPossible when an address would stand without a secret, since every
        POST is signed, and for an unknown merchant that is given neither.
        """
        known = self.find(merchant_id)
        if url is not None and secret is None and not (known and known.has_secret):  # as the table demands it, too
            raise NotPossible(f"{merchant_id} has no secret yet; add --secret or --generate-secret")
        changes: dict[str, Any] = {"updated_at": func.now()}
        if url is not None or no_url:
            changes["url"] = url
        if secret is not None:
            changes |= {"secret": self._encrypted(secret), "previous_secret": None, "previous_until": None}
        if standard_headers is not None:
            changes["standard_headers"] = standard_headers
        # An insert that gives way to an update would be judged by the table first, as if its nulls were meant.
        if known or (url is None and secret is None):
            return self._change(merchant_id, **changes)
        rows = self._database.rows(
            insert(endpoints)
            .values(id=merchant_id, merchant_id=merchant_id, **changes)
            .on_conflict_do_update(index_elements=["id"], set_={**changes, "removed_at": None})
            .returning(*_SHOWN)
        )
        return _endpoint(rows[0])

    def rotate(self, merchant_id: str, *, secret: str, overlap: timedelta) -> Endpoint:
        """Replace a merchant's secret; the previous one stays valid for `overlap`, which may be 0.

        Raises NotPossible while an earlier overlap lasts: a third secret would cut off whoever still holds the first.
        Without an overlap it replaces both at once.
        """
        if not timedelta() <= overlap <= LONGEST_OVERLAP:
            raise NotPossible(f"an overlap lasts from 0 to {LONGEST_OVERLAP.days}d")
        free = func.coalesce(endpoints.c.previous_until <= func.now(), True)
        rows = self._database.rows(
            endpoints.update()
            .where(
                endpoints.c.id == merchant_id,
                _IS_THERE,
                endpoints.c.secret.is_not(None),
                free if overlap else true(),
            )
            .values(
                secret=self._encrypted(secret),
                previous_secret=endpoints.c.secret if overlap else null(),
                previous_until=func.now() + overlap if overlap else null(),
                updated_at=func.now(),
            )
            .returning(*_SHOWN)
        )
        if not rows:
            raise _why_not_rotated(self.get(merchant_id))
        return _endpoint(rows[0])

    def finish_rotation(self, merchant_id: str) -> Endpoint:
        """End an overlap now: the new secret counts alone. Raises NotPossible when there is none."""
        if self.get(merchant_id).previous_secret_until is None:
            raise NotPossible(f"{merchant_id} has no overlap to end: its secret counts alone")
        return self._change(merchant_id, previous_secret=None, previous_until=None)

    def _encrypted(self, secret: str) -> bytes:
        try:
            standard_key(secret)
        except ValueError as error:
            raise NotPossible(str(error)) from None
        return self._cipher.encrypt(secret.encode())

    def pause(self, merchant_id: str, *, paused: bool) -> Endpoint:
        """Hold a merchant's deliveries from now on, or let them go again. Raises NotPossible for an unknown one."""
        return self._change(merchant_id, paused_at=func.coalesce(endpoints.c.paused_at, func.now()) if paused else None)

    def _change(self, merchant_id: str, **changes: Any) -> Endpoint:
        rows = self._database.rows(
            endpoints.update()
            .where(endpoints.c.id == merchant_id, _IS_THERE)
            .values({"updated_at": func.now(), **changes})
            .returning(*_SHOWN)
        )
        if not rows:
            raise unknown(merchant_id)
        return _endpoint(rows[0])

    def find(self, merchant_id: str) -> Endpoint | None:
        """Return a merchant, or None when it is not registered."""
        rows = self._database.rows(select(*_SHOWN).where(endpoints.c.id == merchant_id, _IS_THERE), repeatable=True)
        return _endpoint(rows[0]) if rows else None

    def get(self, merchant_id: str) -> Endpoint:
        """Return a merchant; raises NotPossible when it is not registered."""
        found = self.find(merchant_id)
        if found is None:
            raise unknown(merchant_id)
        return found

    def all(self) -> Sequence[Endpoint]:
        """Return every merchant, by id."""
        rows = self._database.rows(select(*_SHOWN).where(_IS_THERE).order_by(endpoints.c.id), repeatable=True)
        return [_endpoint(row) for row in rows]


def unknown(merchant_id: str, *, held: int = 0) -> NotPossible:
    """Say that a merchant is not registered, how many of its deliveries wait for that, and how to register it."""
    waiting = f", and {held} of its deliveries are held" if held else ""
    return NotPossible(
        f"no merchant {merchant_id}{waiting}; register it with: webhooks merchant set {merchant_id} --url https://…"
    )


def _why_not_rotated(found: Endpoint) -> NotPossible:
    if not found.has_secret:
        return NotPossible(f"{found.id} has no secret yet; give it one with: webhooks merchant set {found.id}")
    return NotPossible(
        f"{found.id} is in the middle of a rotation, until {found.previous_secret_until:%Y-%m-%d %H:%M:%S} UTC; "
        "end that with --finish, or replace both secrets at once with --overlap 0"
    )


def _endpoint(row: Row[Any]) -> Endpoint:
    values = row._asdict()
    types = row.types and tuple(row.types)
    return Endpoint(**{**values, "headers": tuple(row.headers), "types": types})
