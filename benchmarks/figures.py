"""Figures and the table that they make: percentiles, medians of rounds, ratios; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_WORST = ("max", "late", "missing")  # of these the worst round counts, not the median
LATE = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One line: figures by name with their unit, and a ratio, where it says against what."""

    arm: str
    case: str
    figures: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    against: str = ""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def latencies(seconds: Sequence[float], prefix: str = "") -> dict[str, float]:
    """Return p50, p90, p99 and max in milliseconds, and how many came later than a second."""
    if not seconds:
        return {}
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    told = {f"{prefix}{name} ms": 1000 * percentile(seconds, share) for name, share in shares.items()}
    return told | {f"{prefix}late": sum(each > LATE for each in seconds)}


def compared(
    arm: str, case: str, seconds: Sequence[float], without: Sequence[float], against: str, **more: float
) -> Row:
    """Return latencies beside those without what is tried; the ratio is that of both p99."""
    ratio = percentile(seconds, 0.99) / percentile(without, 0.99) if seconds and without else None
    return Row(arm, case, latencies(seconds) | latencies(without, "without: ") | more, ratio, f"p99, {against}")


def rate(moments: Sequence[float]) -> float:
    """Return how many came in a second, between the first and the last; 0 where there is no span."""
    span = max(moments) - min(moments) if moments else 0.0
    return (len(moments) - 1) / span if span else 0.0


def merged(rounds: Sequence[Sequence[Row]]) -> list[Row]:
    """Return one row for each case: the median of the rounds, and the worst where the worst is what is asked for."""
    cases = dict.fromkeys((row.arm, row.case) for each in rounds for row in each)
    return [_merged([row for each in rounds for row in each if (row.arm, row.case) == case]) for case in cases]


def _merged(rows: Sequence[Row]) -> Row:
    names = dict.fromkeys(name for row in rows for name in row.figures)
    figures = {name: _of_rounds(name, [row.figures[name] for row in rows if name in row.figures]) for name in names}
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return Row(rows[0].arm, rows[0].case, figures, statistics.median(ratios) if ratios else None, rows[0].against)


def _of_rounds(name: str, values: Sequence[float]) -> float:
    kind = name.removeprefix("without: ").partition(" ")[0]
    return max(values) if kind in _WORST else statistics.median(values)


def table(rows: Sequence[Row]) -> str:
    """Return rows as lines for a terminal."""
    width = max((len(row.case) for row in rows), default=0)
    lines = []
    for row in rows:
        ratio = f"{row.ratio:6.2f} × {row.against}" if row.ratio is not None else ""
        figures = "  ".join(f"{name} {number(value)}" for name, value in row.figures.items())
        lines.append(f"{row.arm:<11}{row.case:<{width}}  {figures}{'  ' if ratio else ''}{ratio}")
    return "\n".join(lines)


def number(value: float) -> str:
    """Return a figure with as many places as are worth reading."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows as JSON has them."""
    return [asdict(row) for row in rows]
