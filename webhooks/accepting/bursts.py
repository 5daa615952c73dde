"""Telling a burst: many events of one merchant that come one by one are no better than as many in one call."""

from __future__ import annotations

from collections.abc import Callable

MOST_AT_ONCE = 20
"""So many events of a merchant's go before what may wait: in one call, or within a second from one process."""

_SPAN_S = 1.0
_MOST_MERCHANTS = 1000  # that are remembered: whoever has more of them in a second floods none with many


class Bursts:
    """Counts the events of each merchant within a second; bounded, and shared by threads without a lock.

    A count that two threads take at once is short of one.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._counted: dict[str, tuple[float, int]] = {}

    def may_wait(self, merchant_id: str) -> bool:
        """Count one more event, and say whether the merchant has had its first ones within this second."""
        now_s = self._clock_s()
        since_s, count = self._counted.get(merchant_id, (now_s, 0))
        if now_s - since_s >= _SPAN_S:
            since_s, count = now_s, 0
        elif not count and len(self._counted) >= _MOST_MERCHANTS:
            self._counted = {}
        self._counted[merchant_id] = (since_s, count + 1)
        return count >= MOST_AT_ONCE
