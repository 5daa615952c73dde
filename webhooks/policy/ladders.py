"""Which wait comes next, or none: the two ladders of the rules, part 1.

Each ladder has its own budget. Waits run from the end of the attempt before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

FAST_WAITS = (
    # after the n-th charged failure  · running total
    timedelta(seconds=1),  #          ·        1 s
    timedelta(seconds=2),  #          ·        3 s
    timedelta(seconds=4),  #          ·        7 s
    timedelta(seconds=8),  #          ·       15 s
    timedelta(seconds=16),  #         ·       31 s
    timedelta(seconds=32),  #         ·  1 min  3 s
    timedelta(seconds=64),  #         ·  2 min  7 s
    timedelta(seconds=128),  #        ·  4 min 15 s
    timedelta(seconds=256),  #        ·  8 min 31 s; the tenth failure ends it
)

SLOW_WAITS = (
    # after the n-th refusal      · running total
    timedelta(minutes=15),  #     ·      15 min
    timedelta(hours=1),  #        ·  1 h 15 min
    timedelta(hours=4),  #        ·  5 h 15 min
    timedelta(hours=12),  #       · 17 h 15 min
    timedelta(hours=24),  #       · 41 h 15 min; the sixth refusal ends it
)


@dataclass(frozen=True, slots=True)
class Ladders:
    """The ladders' numbers; the defaults are the rules'."""

    fast_waits: tuple[timedelta, ...] = FAST_WAITS
    slow_waits: tuple[timedelta, ...] = SLOW_WAITS
    slow_ceiling: timedelta = timedelta(hours=48)
    retry_after_cap: timedelta = timedelta(hours=1)


def next_fast_wait(ladders: Ladders, spent: int, requested: timedelta) -> timedelta | None:
    """Return the wait after the `spent`-th charged failure, or None when the budget is used up.

    `requested` is what the merchant asked for by `Retry-After`: it can lengthen the wait, never shorten it.
    """
    if spent > len(ladders.fast_waits):
        return None
    return max(ladders.fast_waits[spent - 1], requested)


def next_slow_wait(ladders: Ladders, spent: int, since: datetime, now: datetime) -> timedelta | None:
    """Return the wait after the `spent`-th step, or None after the last one or where it would end past the ceiling.

    `since` is the first 4xx of this ladder: the 48 hours run from there and not from acceptance.
    """
    if spent > len(ladders.slow_waits):
        return None
    wait = ladders.slow_waits[spent - 1]
    return wait if now + wait <= since + ladders.slow_ceiling else None
