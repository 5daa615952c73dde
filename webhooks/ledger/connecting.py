"""How a connection to PostgreSQL is made and judged, so that no state is ever set on it.

Behind a pooler that hands out its connections by transaction (PgBouncer), what one session sets is another's surprise:
limits travel with each statement instead, and what the URL says is handed to libpq as it stands.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg2
from psycopg2.extensions import parse_dsn

from webhooks.errors import SettingsError

# Where the URL says otherwise, it wins.
_DEFAULTS: Mapping[str, Any] = {
    "application_name": "webhooks",
    "client_encoding": "utf8",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# A statement of ours is done in milliseconds; what takes longer is stuck, and a stuck worker helps nobody.
_LIMITS: Mapping[str, str] = {
    "statement_timeout": "15s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "60s",
    "TimeZone": "UTC",
}
_LEAST_CONNECT_S = 2  # libpq takes anything shorter for this

READ_ONLY = "25006"
# The session is of no more use, whatever the statement was: a standby, a shutdown, a connection that broke.
_CONDEMNING = re.compile(r"25006|25P0[34]|57P..|08...", re.ASCII)
_AWAY = re.compile(r"25006|25P0[34]|57P..|08...|53...|58...", re.ASCII)
_BUSY = re.compile(r"57014|55P03|40...", re.ASCII)
_OUTDATED = frozenset({"42P01", "42703", "42883"})  # no such table, no such column, no such function


@dataclass(frozen=True, slots=True)
class Way:
    """The way to one database: what libpq is told, and the limits that go in front of each statement."""

    parameters: Mapping[str, Any]
    limits: str
    hosts: int
    _asking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def connect(self, seconds: float) -> Any:
        """Return a new connection within about so many seconds; the URL's own `connect_timeout` goes first."""
        share = max(int(seconds / self.hosts), _LEAST_CONNECT_S)
        return psycopg2.connect(**{"connect_timeout": share, **self.parameters})

    def cancel(self, connection: Any) -> None:
        """Have the server give up what it does for a connection, if the server answers at all.

        psycopg2 lets no other thread run while it asks for this, so that a server which is frozen would freeze us. That
        a connection can be made says nothing: a pooler makes it, whatever has become of the server. One thread at
        a time waits for that; the others' statements are cut without it.
        """
        if not self._asking.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(psycopg2.Error), contextlib.closing(self.connect(_LEAST_CONNECT_S)) as another:
                another.cursor().execute("SELECT 1")
                connection.cancel()
        finally:
            self._asking.release()


def read_url(url: str) -> Way:
    """Read a PostgreSQL URL as libpq does: several hosts, `options`, and every parameter that it knows.

    Raises SettingsError with one line that shows no piece of a password.
    """
    try:
        given = parse_dsn(url.replace("postgresql+psycopg2://", "postgresql://", 1))
    except psycopg2.Error as error:
        unknown = re.search(r'invalid URI query parameter: "([a-z_]+)"', str(error))
        what = f"{unknown[1]} is no parameter of PostgreSQL's" if unknown else "it cannot be read"
        raise SettingsError(f"WEBHOOKS_DATABASE_URL: {what}") from None
    if given.get("client_encoding", "utf8").lower().replace("-", "") not in {"utf8", "auto"}:
        raise SettingsError("WEBHOOKS_DATABASE_URL: client_encoding must be utf8; leave it out")
    options = given.get("options", "").lower()
    limits = {name: value for name, value in _LIMITS.items() if f"{name.lower()}=" not in options}
    return Way(
        {**_DEFAULTS, **given, "client_encoding": "utf8"},
        "".join(f"SET LOCAL {name} = '{value}'; " for name, value in limits.items()),
        given.get("host", "").count(",") + 1,
    )


def condemns(code: str | None) -> bool:
    """Whether an error with this SQLSTATE says something about the session, and nothing about the statement."""
    return code is not None and _CONDEMNING.fullmatch(code) is not None


def is_away(code: str) -> bool:
    """Whether the ledger cannot be used now: the connection, the server, its disk or its memory."""
    return _AWAY.fullmatch(code) is not None


def is_busy(code: str | None) -> bool:
    """Whether this statement got no lock or took too long, while others may pass."""
    return code is not None and _BUSY.fullmatch(code) is not None


def is_outdated(code: str | None) -> bool:
    """Whether a table, a column or a function is missing."""
    return code in _OUTDATED
