"""What the drill watches while it goes on: the broker's depth, doubled messages, how long the due wait, claims."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from types import TracebackType
from typing import Self

import psycopg2
from redis.exceptions import RedisError

from tests.faults.addressees import ADDRESSEES, SICK
from tests.faults.faults import COPY
from tests.faults.theatre import RANKS, Theatre

# Those whose breaker or own limits hold what was due before are left out.
_LONGEST_OVERDUE = """
SELECT coalesce(extract(epoch FROM max(now() - due_at)), 0) FROM deliveries
WHERE state = 'pending' AND sending_since IS NULL AND due_at <= now() AND endpoint_id <> ALL(%s)
"""
_HOLDS = [each.endpoint_id for each in ADDRESSEES.values() if each.endpoint_id in SICK or each.lane or each.rate]

# At no moment may a delivery be one that somebody sends, and nobody's claim.
_UNCLAIMED = """
SELECT id FROM deliveries LEFT JOIN claims ON claims.delivery_id = deliveries.id
WHERE sending_since IS NOT NULL AND claims.delivery_id IS NULL
"""


class Watch:
    """Looks twice a second; what is away at that moment is looked at the next time."""

    def __init__(self, theatre: Theatre) -> None:
        self._theatre = theatre
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self.deepest = 0
        self.most_copies = 0
        self.longest_overdue = 0.0
        self.unclaimed: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._leave.wait(0.5):
            with contextlib.suppress(RedisError, OSError):
                self._look_at_queue()
            with contextlib.suppress(psycopg2.Error):
                self._look_at_ledger()

    def _look_at_queue(self) -> None:
        quick = [message for rank in RANKS for message in self._theatre.redis.lrange(rank, 0, -1)]
        self.deepest = max(self.deepest, len(quick))
        messages = [*quick, *self._theatre.redis.lrange("slow", 0, -1)]
        headers = [json.loads(message)["headers"] for message in messages]
        copies = Counter((header["id"], header.get("turn")) for header in headers if COPY not in header)
        self.most_copies = max([self.most_copies, *copies.values()])

    def _look_at_ledger(self) -> None:
        connection = psycopg2.connect(self._theatre.servers.postgres.url(), application_name="drill")
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(_LONGEST_OVERDUE, (_HOLDS,))
            (overdue,) = cursor.fetchone() or (0,)
            self.longest_overdue = max(self.longest_overdue, float(overdue))
            cursor.execute(_UNCLAIMED)
            self.unclaimed |= {delivery_id for (delivery_id,) in cursor.fetchall()}
