"""Where merchants are registered: the only place that writes an address or a secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cryptography.fernet import MultiFernet
from sqlalchemy import Row, func, select
from sqlalchemy.dialects.postgresql import insert

from webhooks.errors import NotPossible
from webhooks.ledger.database import Database
from webhooks.ledger.tables import merchants
from webhooks.model import Merchant

_SHOWN = (
    merchants.c.id,
    merchants.c.url,
    merchants.c.secret.is_not(None).label("has_secret"),
    merchants.c.paused_at,
    merchants.c.created_at,
    merchants.c.updated_at,
)


class Merchants:
    """The registered merchants; secrets go in and never come out."""

    def __init__(self, database: Database, cipher: MultiFernet) -> None:
        self._database = database
        self._cipher = cipher

    def set(self, merchant_id: str, *, url: str | None, secret: str | None) -> Merchant:
        """Register a merchant or change it; what is None stays as it was.

        Raises NotPossible when an address would stand without a secret: every POST is signed.
        """
        known = self.find(merchant_id)
        if url and not secret and not (known and known.has_secret):
            raise NotPossible(f"{merchant_id} has no secret yet; add --secret or --generate-secret")
        changes: dict[str, Any] = {"updated_at": func.now()}
        if url is not None:
            changes["url"] = url
        if secret is not None:
            changes["secret"] = self._cipher.encrypt(secret.encode())
        rows = self._database.rows(
            insert(merchants)
            .values(id=merchant_id, **changes)
            .on_conflict_do_update(index_elements=["id"], set_=changes)
            .returning(*_SHOWN)
        )
        return _merchant(rows[0])

    def clear_url(self, merchant_id: str) -> Merchant:
        """Take a merchant's address away: its deliveries are held until it has one again."""
        return self._change(merchant_id, url=None)

    def pause(self, merchant_id: str, *, paused: bool) -> Merchant:
        """Hold a merchant's deliveries from now on, or let them go again. Raises NotPossible for an unknown one."""
        return self._change(merchant_id, paused_at=func.coalesce(merchants.c.paused_at, func.now()) if paused else None)

    def _change(self, merchant_id: str, **changes: Any) -> Merchant:
        rows = self._database.rows(
            merchants.update()
            .where(merchants.c.id == merchant_id)
            .values(updated_at=func.now(), **changes)
            .returning(*_SHOWN)
        )
        if not rows:
            raise unknown(merchant_id)
        return _merchant(rows[0])

    def find(self, merchant_id: str) -> Merchant | None:
        """Return a merchant, or None when it is not registered."""
        rows = self._database.rows(select(*_SHOWN).where(merchants.c.id == merchant_id))
        return _merchant(rows[0]) if rows else None

    def get(self, merchant_id: str) -> Merchant:
        """Return a merchant; raises NotPossible when it is not registered."""
        found = self.find(merchant_id)
        if found is None:
            raise unknown(merchant_id)
        return found

    def all(self) -> Sequence[Merchant]:
        """Return every merchant, by id."""
        return [_merchant(row) for row in self._database.rows(select(*_SHOWN).order_by(merchants.c.id))]


def unknown(merchant_id: str) -> NotPossible:
    """Say that a merchant is not registered, and how to register it."""
    return NotPossible(
        f"no merchant {merchant_id}; register it with: webhooks merchant set {merchant_id} --url https://…"
    )


def _merchant(row: Row[Any]) -> Merchant:
    return Merchant(**row._asdict())
