"""Durations in words."""

from __future__ import annotations

from datetime import timedelta


def in_words(span: timedelta) -> str:
    """Write a duration with the unit that fits: `250 ms`, `1.5 s`, `15 min`, `4 h`, `2 d`."""
    seconds = span.total_seconds()
    steps: tuple[tuple[float, float, str], ...] = (
        (1, 0.001, "ms"),
        (120, 1, "s"),
        (7200, 60, "min"),
        (172800, 3600, "h"),
    )
    size, unit = next(((size, unit) for limit, size, unit in steps if abs(seconds) < limit), (86400.0, "d"))
    return f"{seconds / size:.3g} {unit}"
