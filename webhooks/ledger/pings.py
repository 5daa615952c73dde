"""What a test event is sent with: an endpoint's address, secrets and headers. Nothing of it is a delivery."""

from __future__ import annotations

from datetime import datetime

from cryptography.fernet import InvalidToken, MultiFernet
from sqlalchemy import case, select

from webhooks.accepting.reading import Event
from webhooks.errors import LocalFault, NotPossible
from webhooks.ledger.acts import Rows
from webhooks.ledger.statements import HAS_ADDRESS
from webhooks.ledger.tables import endpoints
from webhooks.ledger.transitions import NOW, the
from webhooks.model import Delivery

_ADDRESSED = select(
    *endpoints.c["url", "secret", "standard_headers", "headers"],
    case((endpoints.c.previous_until > NOW, endpoints.c.previous_secret)).label("previous_secret"),
    NOW.label("now"),
).where(endpoints.c.id == the("id"), HAS_ADDRESS, endpoints.c.removed_at.is_(None))


class Pings:
    """Reads what is decrypted for one POST."""

    def __init__(self, database: Rows, cipher: MultiFernet) -> None:
        self._database = database
        self._cipher = cipher

    def to(self, endpoint_id: str, event: Event) -> Delivery:
        """Return an event as it would go to an endpoint now, by the ledger's clock; nobody has accepted it.

        Raises NotPossible for an endpoint without an address, and LocalFault where a key is missing.
        """
        rows = self._database.rows(_ADDRESSED, {"the_id": endpoint_id}, repeatable=True)
        if not rows:
            raise NotPossible(f"{endpoint_id} has no address: there is nowhere to send to")
        (row,) = rows
        now: datetime = row.now
        try:
            return Delivery(
                id=event.id,
                event_id=event.id,
                merchant_id=event.merchant_id,
                endpoint_id=endpoint_id,
                type=event.type,
                turn=0,
                number=1,
                started_at=now,
                money=False,
                expires_at=now,
                fast_spent=0,
                slow_spent=0,
                slow_since=None,
                url=row.url,
                secret=self._decrypted(row.secret),
                body=event.body,
                previous_secret=None if row.previous_secret is None else self._decrypted(row.previous_secret),
                standard_headers=row.standard_headers,
                headers={name: self._decrypted(value.encode()) for name, value in row.headers.items()},
            )
        except InvalidToken:
            raise LocalFault(
                f"a secret of endpoint {endpoint_id} cannot be decrypted: WEBHOOKS_SECRETS_KEY lacks its key"
            ) from None

    def _decrypted(self, token: bytes) -> str:
        return self._cipher.decrypt(bytes(token)).decode()
