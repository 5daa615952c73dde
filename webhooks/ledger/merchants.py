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
from webhooks.ledger.tables import merchants
from webhooks.model import Merchant
from webhooks.signing import standard_key

LONGEST_OVERLAP = timedelta(days=30)  # by then every delivery from before the rotation has ended

_OVERLAPS = merchants.c.previous_until > func.now()

_SHOWN = (
    merchants.c.id,
    merchants.c.url,
    merchants.c.secret.is_not(None).label("has_secret"),
    case((_OVERLAPS, merchants.c.previous_until)).label("previous_secret_until"),
    merchants.c.standard_headers,
    merchants.c.paused_at,
    merchants.c.created_at,
    merchants.c.updated_at,
)


class Merchants:
    """The registered merchants; secrets go in and never come out."""

    def __init__(self, database: Rows, cipher: MultiFernet) -> None:
        self._database = database
        self._cipher = cipher

    def within(self, act: Rows) -> Merchants:
        """Return the same, with every change a part of an operator's act."""
        return Merchants(act, self._cipher)

    def set(
        self,
        merchant_id: str,
        *,
        url: str | None,
        secret: str | None,
        no_url: bool = False,
        standard_headers: bool | None = None,
    ) -> Merchant:
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
            insert(merchants)
            .values(id=merchant_id, **changes)
            .on_conflict_do_update(index_elements=["id"], set_=changes)
            .returning(*_SHOWN)
        )
        return _merchant(rows[0])

    def rotate(self, merchant_id: str, *, secret: str, overlap: timedelta) -> Merchant:
        """Replace a merchant's secret; the previous one stays valid for `overlap`, which may be 0.

        Raises NotPossible while an earlier overlap lasts: a third secret would cut off whoever still holds the first.
        Without an overlap it replaces both at once.
        """
        if not timedelta() <= overlap <= LONGEST_OVERLAP:
            raise NotPossible(f"an overlap lasts from 0 to {LONGEST_OVERLAP.days}d")
        free = func.coalesce(merchants.c.previous_until <= func.now(), True)
        rows = self._database.rows(
            merchants.update()
            .where(
                merchants.c.id == merchant_id,
                merchants.c.secret.is_not(None),
                free if overlap else true(),
            )
            .values(
                secret=self._encrypted(secret),
                previous_secret=merchants.c.secret if overlap else null(),
                previous_until=func.now() + overlap if overlap else null(),
                updated_at=func.now(),
            )
            .returning(*_SHOWN)
        )
        if not rows:
            raise _why_not_rotated(self.get(merchant_id))
        return _merchant(rows[0])

    def finish_rotation(self, merchant_id: str) -> Merchant:
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

    def pause(self, merchant_id: str, *, paused: bool) -> Merchant:
        """Hold a merchant's deliveries from now on, or let them go again. Raises NotPossible for an unknown one."""
        return self._change(merchant_id, paused_at=func.coalesce(merchants.c.paused_at, func.now()) if paused else None)

    def _change(self, merchant_id: str, **changes: Any) -> Merchant:
        rows = self._database.rows(
            merchants.update()
            .where(merchants.c.id == merchant_id)
            .values({"updated_at": func.now(), **changes})
            .returning(*_SHOWN)
        )
        if not rows:
            raise unknown(merchant_id)
        return _merchant(rows[0])

    def find(self, merchant_id: str) -> Merchant | None:
        """Return a merchant, or None when it is not registered."""
        rows = self._database.rows(select(*_SHOWN).where(merchants.c.id == merchant_id), repeatable=True)
        return _merchant(rows[0]) if rows else None

    def get(self, merchant_id: str) -> Merchant:
        """Return a merchant; raises NotPossible when it is not registered."""
        found = self.find(merchant_id)
        if found is None:
            raise unknown(merchant_id)
        return found

    def all(self) -> Sequence[Merchant]:
        """Return every merchant, by id."""
        rows = self._database.rows(select(*_SHOWN).order_by(merchants.c.id), repeatable=True)
        return [_merchant(row) for row in rows]


def unknown(merchant_id: str, *, held: int = 0) -> NotPossible:
    """Say that a merchant is not registered, how many of its deliveries wait for that, and how to register it."""
    waiting = f", and {held} of its deliveries are held" if held else ""
    return NotPossible(
        f"no merchant {merchant_id}{waiting}; register it with: webhooks merchant set {merchant_id} --url https://…"
    )


def _why_not_rotated(found: Merchant) -> NotPossible:
    if not found.has_secret:
        return NotPossible(f"{found.id} has no secret yet; give it one with: webhooks merchant set {found.id}")
    return NotPossible(
        f"{found.id} is in the middle of a rotation, until {found.previous_secret_until:%Y-%m-%d %H:%M:%S} UTC; "
        "end that with --finish, or replace both secrets at once with --overlap 0"
    )


def _merchant(row: Row[Any]) -> Merchant:
    return Merchant(**row._asdict())
