"""What is looked at when a drill has failed: the rows concerned, the queues, and what each consumer holds."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from signal import Signals
from typing import Any

from redis.exceptions import RedisError
from rich.console import Console
from sqlalchemy import Row, text

from tests.faults import consumers
from tests.faults.evidence import Evidence
from tests.faults.theatre import RANKS, Theatre
from webhooks import parts
from webhooks.demo.stage import Program, wait_until
from webhooks.errors import NotPossible, WebhooksError
from webhooks.process.stacks import HEADING

_ROWS = """
SELECT id, endpoint_id, type, state, reason, held_for, turn, attempts, fast_spent, slow_spent, accepted_at, due_at,
       sweep_at, queued_at, sending_since, finished_at, now() AS seen_at
FROM deliveries WHERE id = ANY(:ids)
"""
_CLAIMS = "SELECT delivery_id, ends_at, silent_since FROM claims ORDER BY ends_at"
_ATTEMPTS = "SELECT * FROM attempts WHERE delivery_id = ANY(:ids) ORDER BY delivery_id, number"
_QUEUES = (*RANKS, "slow", "sweep")
_SHOWN = 5  # deliveries that are told in full
_LISTED = 20  # ids in one line
_LINES = 8  # of a log
_STACKS = HEADING.encode()


def look(theatre: Theatre, evidence: Evidence, findings: Sequence[str], console: Console) -> None:
    """Print what the findings are about, and have every worker write its threads' stacks into its log."""
    ids = list(dict.fromkeys(each for finding in findings for name in _names(finding) for each in _of(name, evidence)))
    shown = ids[:_SHOWN]
    for line in (
        *_the_faults(evidence),
        *_the_rows(shown, evidence),
        *_the_broker(theatre),
        *_the_consumers(),
        *_the_logs(theatre, shown),
    ):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    _have_stacks_written([program for name, program in theatre.programs.items() if name != "beat"])


def _have_stacks_written(workers: Sequence[Program]) -> None:
    for worker in workers:
        worker.send(Signals.SIGUSR1)  # it writes every thread's stack
    with contextlib.suppress(NotPossible):  # a worker that hangs writes nothing
        wait_until(lambda: all(_STACKS in worker.log.read_bytes() for worker in workers), "they are written", timeout=5)


def keep_logs(theatre: Theatre, folder: Path | None) -> Path:
    """Copy the processes' logs to a folder that stays."""
    kept = folder or Path(tempfile.mkdtemp(prefix="webhooks-drill-logs-"))
    kept.mkdir(parents=True, exist_ok=True)
    for log in theatre.folder.glob("*.log"):
        shutil.copy(log, kept)
    return kept


def _names(finding: str) -> Iterator[str]:
    yield from (word.strip(":,") for word in finding.split())


def _of(name: str, evidence: Evidence) -> Sequence[str]:
    """Return the deliveries that a word names, by their own id or by their event's; most words name none."""
    if name in evidence.deliveries:
        return [name]
    return [row.id for row in evidence.deliveries.values() if row.event_id == name]


def _the_faults(evidence: Evidence) -> Iterator[str]:
    yield "the faults:"
    for fault in evidence.faults:
        yield f"  {fault.began:%H:%M:%S.%f} to {fault.ended:%H:%M:%S.%f}  {fault.name}"


def _the_rows(ids: list[str], evidence: Evidence) -> Iterator[str]:
    try:
        rows = parts.database().rows(text(_ROWS), {"ids": ids})
        attempts = parts.database().rows(text(_ATTEMPTS), {"ids": ids})
        claims = parts.database().rows(text(_CLAIMS))
    except WebhooksError as error:
        yield f"the rows cannot be read: {error}"
        return
    for row in rows:
        yield f"delivery {row.id}: {_told(row)}"
        yield from (f"  attempt {_told(attempt)}" for attempt in attempts if attempt.delivery_id == row.id)
        for visit in evidence.visits.get(row.id, ()):
            at = f"{visit.request.at:%H:%M:%S.%f} to {visit.until:%H:%M:%S.%f}"
            yield f"  {visit.endpoint_id} saw attempt {visit.attempt} from {at} and said {visit.status}"
    yield f"claims: {len(claims)}{_list(_told(claim) for claim in claims)}"


def _told(row: Row[Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row._asdict().items() if value is not None)


def _the_broker(theatre: Theatre) -> Iterator[str]:
    try:
        for queue in _QUEUES:
            messages = theatre.redis.lrange(queue, 0, -1)
            yield f"queue {queue}: {len(messages)} messages{_list(map(_identity, map(json.loads, messages)))}"
        given = [json.loads(kept) for kept in theatre.redis.hvals("unacked")]
        yield f"unacknowledged: {len(given)} messages{_list(f'{_identity(kept[0])} of {kept[2]}' for kept in given)}"
    except (RedisError, OSError) as error:
        yield f"the broker cannot be looked at: {error}"


def _identity(message: Any) -> str:
    headers = message["headers"]
    return f"{headers.get('id')} turn {headers['turn']}" if "turn" in headers else str(headers.get("task"))


def _the_consumers() -> Iterator[str]:
    for what in ("window", "active", "reserved", "scheduled"):
        answers = consumers.ask(what)
        if not answers:
            yield f"{what}: nobody answers"
        for worker, answer in sorted(answers.items()):
            if isinstance(answer, dict):
                held = answer.pop("holds", [])
                yield f"{what} of {worker}: {answer}, holds {len(held)}{_list(held)}"
            else:
                yield f"{what} of {worker}: {len(answer)}{_list(map(_request, answer))}"


def _request(entry: dict[str, Any]) -> str:
    request = entry.get("request", entry)
    return f"{request.get('id')} since {request.get('time_start')}" if "eta" not in entry else f"{request.get('id')}"


def _list(names: Iterable[object]) -> str:
    listed = [str(name) for name in names]
    more = f", … and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return f": {', '.join(listed[:_LISTED])}{more}" if listed else ""


def _the_logs(theatre: Theatre, ids: list[str]) -> Iterator[str]:
    for log in sorted(theatre.folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        for delivery_id in ids:
            named = [line for line in lines if delivery_id in _names(line.replace("[", " ").replace("]", " "))]
            yield from (f"{log.name}: {line}" for line in named[-_LINES:])
