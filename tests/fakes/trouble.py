"""Faults that a test plans for a fake."""

from __future__ import annotations

from collections import defaultdict


class Trouble:
    """What the next calls raise, by the name of the call."""

    def __init__(self) -> None:
        self._planned: defaultdict[str, list[Exception]] = defaultdict(list)

    def plan(self, call: str, *errors: Exception) -> None:
        """Have the next calls raise these, one each; the ones after them do what they do."""
        self._planned[call] += errors

    def meet(self, call: str) -> None:
        """Raise what is planned for this call."""
        if self._planned[call]:
            raise self._planned[call].pop(0)
