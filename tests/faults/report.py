"""The drill's last word: one table of figures, and the verdict on each check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.faults.addressees import SIBLINGS, STRANGERS
from tests.faults.checks import CHECKS, Check
from tests.faults.evidence import Evidence

_SHOWN = 5  # findings of one check that are printed


def show(evidence: Evidence, figures: Mapping[str, object], console: Console) -> list[str]:
    """Print the table and the checks; returns the findings that were printed, none when all is well."""
    console.print(_table(evidence, figures))
    return [finding for check in CHECKS for finding in _judge(evidence, check, console)]


def _table(evidence: Evidence, figures: Mapping[str, object]) -> Table:
    table = Table(show_header=False, title="the drill in figures")
    ended, outcomes = evidence.ended(), evidence.outcomes()
    copies = Counter(fault or "NOT EXPLAINED" for _, fault in evidence.copies())
    rows: dict[str, object] = {
        "accepted events": f"{len(evidence.accepted)}, {_unmatched(evidence)}",
        "deliveries": len(evidence.deliveries),
        "delivered": ended.pop("delivered", 0),
        **{f"failed: {reason}": count for reason, count in sorted(ended.items()) if reason not in {"pending", "held"}},
        "still pending": len(evidence.unfinished),
        f"removed with {evidence.removal.endpoint_id}": f"{evidence.removal.cancelled} deliveries that were unfinished",
        "POSTs that the endpoints saw": f"{evidence.posts}, {len(evidence.unheard)} on a kept connection that died",
        "attempts in the ledger": f"{outcomes.total()}, {outcomes['unknown']} of them unknown",
        "POSTs after a 2xx": ", ".join([str(copies.total()), *(f"{name}: {n}" for name, n in copies.items())]),
        "POSTs of one delivery at a time": f"{len(evidence.overlapping())} overlapped",
        "longest overdue, a breaker's holds aside": f"{evidence.longest_overdue:.1f} s",
        "a healthy merchant's event took": ", then ".join(map(_median, evidence.ways(STRANGERS))),
        "a sick endpoint's sibling's took": ", then ".join(map(_median, evidence.ways(SIBLINGS))),
        "highest broker depth": f"{evidence.deepest}, at most {evidence.most_copies} of one turn",
        "in mid-POST with a message": f"{sum(evidence.unacknowledged)} of {len(evidence.unacknowledged)}",
        **figures,
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def _unmatched(evidence: Evidence) -> str:
    return f"{sum(row.unmatched for row in evidence.events.values())} of which no endpoint wants"


def _median(ways: Sequence[float]) -> str:
    return f"{median(ways):.3f} s (median of {len(ways)})" if ways else "unknown"


def _judge(evidence: Evidence, check: Check, console: Console) -> list[str]:
    wrong = list(check(evidence))
    name = (check.__doc__ or "").strip()
    console.print(f"[{'green' if not wrong else 'red'}]{'ok  ' if not wrong else 'FAIL'}[/] {name}", soft_wrap=True)
    for finding in wrong[:_SHOWN]:
        console.print(f"       {finding}", soft_wrap=True, markup=False)
    if len(wrong) > _SHOWN:
        console.print(f"       … and {len(wrong) - _SHOWN} more")
    return wrong[:_SHOWN]
