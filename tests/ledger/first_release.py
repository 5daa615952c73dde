"""The release before the ledger knew events: its tables in every state that it knew, and a producer as it was."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from contextlib import closing
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import psycopg2
from psycopg2 import errors

from tests.system import SECRET, System
from webhooks.model import HeldFor, Reason
from webhooks.settings import get_settings

SERVED = "acme"
"""The merchant that is really there: every fiftieth delivery is its."""
_OTHERS = ("bare", "paused", "overlapping", "unregistered", "idle")

_STATES = [
    # state, reason, held for, queued, sending, silent, pruned
    ("pending", None, None, False, False, False, False),
    ("pending", None, None, True, False, False, False),
    ("pending", None, None, True, True, False, False),
    ("pending", None, None, True, True, True, False),
    *(("held", None, why.value, False, False, False, False) for why in HeldFor if why is not HeldFor.RATE),
    ("delivered", None, None, False, False, False, False),
    ("delivered", None, None, False, False, False, True),
    *(("failed", reason.value, None, False, False, False, False) for reason in Reason),
    ("failed", Reason.EXPIRED.value, None, False, False, False, True),
]
EACH_ONCE = 50 * len(_STATES)
"""With so many deliveries, the served merchant has one in each state."""

_MERCHANTS = """
INSERT INTO merchants (id, url, secret, previous_secret, previous_until, standard_headers, paused_at) VALUES
('bare', NULL, :secret, NULL, NULL, false, NULL),
('paused', 'https://paused.example/', :secret, NULL, NULL, false, now()),
('overlapping', 'https://overlapping.example/', :secret, :secret, now() + interval '1 day', true, NULL),
('idle', 'https://idle.example/', :secret, NULL, NULL, false, NULL),
('acme', :url, :secret, NULL, NULL, false, NULL)
"""

_BODY = (
    """convert_to('{"id":"' || id || '","merchant_id":"' || merchant_id || '","type":"refund.completed"}', 'UTF8')"""
)

_DELIVERIES = f"""
WITH given AS (
    SELECT 'old-' || n AS id, n, CASE WHEN n % 50 = 0 THEN 'acme' ELSE (CAST(:others AS text[]))[1 + n % 5] END
               AS merchant_id, date_trunc('second', now()) - interval '1 hour' - n * interval '1 ms' AS since,
           state, reason, held_for, queued, sending, silent, pruned
    FROM generate_series(1, :rows) AS n
    JOIN unnest(CAST(:states AS text[]), CAST(:reasons AS text[]), CAST(:held_for AS text[]),
        CAST(:queued AS boolean[]), CAST(:sending AS boolean[]), CAST(:silent AS boolean[]), CAST(:pruned AS boolean[]))
        WITH ORDINALITY AS states (state, reason, held_for, queued, sending, silent, pruned, kind)
        ON kind = 1 + n % cardinality(CAST(:states AS text[]))
)
INSERT INTO deliveries (id, merchant_id, type, money, body, body_sha256, state, reason, held_for, due_at, sweep_at,
    queued_at, sending_since, silent_since, claimed_by, turn, attempts, fast_spent, slow_spent, slow_since, accepted_at,
    expires_at, finished_at)
SELECT id, merchant_id, 'refund.completed', true, CASE WHEN NOT pruned THEN {_BODY} END, sha256({_BODY}), state, reason,
    held_for, since + n % 7 * interval '1 s', CASE WHEN state = 'pending' THEN since + interval '30 s' END,
    CASE WHEN queued THEN since END, CASE WHEN sending THEN since + interval '15 s' END,
    CASE WHEN silent THEN since + interval '30 s' END, CASE WHEN sending THEN gen_random_uuid() END, n % 5, 1 + n % 3,
    n % 3, n % 2, CASE WHEN n % 2 = 1 THEN since END, since, since + interval '30 days',
    CASE WHEN state IN ('delivered', 'failed') THEN since + interval '20 s' END
FROM given
"""

_ATTEMPTS = """
INSERT INTO attempts (delivery_id, number, started_at, duration_ms, outcome, status, excerpt, ladder, probe)
SELECT id, number, accepted_at + number * interval '1 s', 120, 'unavailable', 503, 'busy', 'fast', false
FROM deliveries, generate_series(1, attempts - CASE WHEN sending_since IS NULL THEN 0 ELSE 1 END) AS number
WHERE body IS NOT NULL
"""


def fill(system: System, rows: int, url: str) -> None:
    """Fill the tables of revision 0002, and keep a copy of all in the schema `before`."""
    secret = get_settings().cipher.encrypt(SECRET.encode())
    system.sql(_MERCHANTS, secret=secret, url=url)
    names = ("states", "reasons", "held_for", "queued", "sending", "silent", "pruned")
    kinds = dict(zip(names, (list(column) for column in zip(*_STATES, strict=True)), strict=True))
    system.sql(_DELIVERIES, rows=rows, others=list(_OTHERS), **kinds)
    system.sql(_ATTEMPTS)
    system.sql("CREATE SCHEMA before")
    for table in ("merchants", "deliveries", "attempts"):
        system.sql(f"CREATE TABLE before.{table} AS SELECT * FROM {table}")
    system.sql("ANALYZE")


# As that release sent it, with its limits of time in front.
_LIMITS = "SET LOCAL statement_timeout = '15s'; SET LOCAL lock_timeout = '5s'; "
_RECORD = """INSERT INTO deliveries (id, merchant_id, type, money, body, body_sha256, due_at, sweep_at, queued_at, \
accepted_at, expires_at) VALUES (%(the_id)s, %(the_merchant_id)s, %(the_type)s, %(the_money)s, %(the_body)s, \
%(the_body_sha256)s, (statement_timestamp() + %(the_wait)s), (statement_timestamp() + %(the_wait)s + \
%(the_recover_after)s), CASE WHEN %(the_queued)s THEN statement_timestamp() END, statement_timestamp(), \
(statement_timestamp() + %(the_max_age)s)) ON CONFLICT (id) DO NOTHING RETURNING deliveries.accepted_at"""
_CONFLICT = """SELECT deliveries.id
FROM deliveries
WHERE deliveries.id = %(the_id)s AND deliveries.body_sha256 != %(the_body_sha256)s"""


def event(event_id: str, merchant_id: str, **more: str) -> dict[str, str]:
    """Return an event as `fill` and the producer hand it over."""
    return {"id": event_id, "merchant_id": merchant_id, "type": "refund.completed", **more}


def old_event(number: int, **more: str) -> dict[str, str]:
    """Return one of the events of `fill`."""
    return event(f"old-{number}", SERVED if number % 50 == 0 else _OTHERS[number % 5], **more)


class Refused(Exception):
    """The id stands for another body."""


class Producer:
    """Hands over events steadily until the `with` block ends: by `delay` and by `record`, anew, again, changed."""

    def __init__(self, database_url: str, rows: int) -> None:
        self._url = database_url
        self._rows = rows
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self.accepted: dict[str, bytes] = {}
        self.taken_back: list[str] = []
        self.mistakes: list[BaseException | str] = []
        self.longest = timedelta()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave.set()
        self._thread.join()

    def _produce(self) -> None:
        dice = random.Random(7)
        try:
            with closing(psycopg2.connect(self._url)) as connection:
                number = 0
                while not self._leave.wait(0.005):
                    number += 1
                    self._hand_over(connection, number, dice)
        except BaseException as error:
            self.mistakes.append(error)

    def _hand_over(self, connection: Any, number: int, dice: random.Random) -> None:
        merchant_id = SERVED if number % 10 == 0 else "idle"
        fresh, beside = event(f"delayed-{number}", merchant_id), event(f"recorded-{number}", merchant_id)
        self.expect(connection, fresh, new=True)
        self.accepted[fresh["id"]] = _body(fresh)
        self.expect(connection, beside, fresh, new=True, commit=number % 3 > 0)
        if number % 3:
            self.accepted[beside["id"]] = _body(beside)
        else:
            self.taken_back.append(beside["id"])
        known = [old_event(dice.randint(1, self._rows)) for _ in range(2)]
        self.expect(connection, *known, new=False)
        for changed in (*known, fresh):
            self.expect_refusal(connection, {**changed, "amount": "1"})

    def expect(self, connection: Any, *events: dict[str, str], new: bool, commit: bool = True) -> None:
        """Record events in one transaction; the first one is new, or known."""
        started = time.monotonic()
        found = [self._record(connection, each) for each in events]
        (connection.commit if commit else connection.rollback)()
        self.longest = max(self.longest, timedelta(seconds=time.monotonic() - started))
        if found != [new] + [False] * (len(events) - 1):
            self.mistakes.append(f"{events}: {found}")

    def expect_refusal(self, connection: Any, changed: dict[str, str]) -> None:
        """Have an event refused, since its id stands for another body."""
        try:
            self._record(connection, changed)
        except (Refused, errors.RaiseException):
            pass
        else:
            self.mistakes.append(f"accepted: {changed}")
        connection.rollback()

    def _record(self, connection: Any, given: dict[str, str]) -> bool:
        body = _body(given)
        values: dict[str, Any] = {f"the_{name}": value for name, value in given.items()}
        values |= {"the_money": True, "the_body": body, "the_body_sha256": hashlib.sha256(body).digest()}
        values |= {"the_wait": timedelta(), "the_recover_after": timedelta(seconds=2), "the_queued": True}
        values |= {"the_max_age": timedelta(days=30)}
        with connection.cursor() as cursor:
            cursor.execute(_LIMITS + _RECORD, values)
            new = bool(cursor.fetchall())
            if not new:
                cursor.execute(_LIMITS + _CONFLICT, values)
                if cursor.fetchall():
                    raise Refused
            return new


def _body(given: dict[str, str]) -> bytes:
    return json.dumps(given, separators=(",", ":")).encode()
