"""The latest fact of each kind that this process keeps for whoever asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from webhooks.observing.facts import Fact


class Latest:
    """Keeps facts, one of each name; several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._facts: dict[str, tuple[Fact, float]] = {}

    def keep(self, fact: Fact) -> None:
        """Keep a fact, as the latest of its name."""
        self._facts[fact.name] = fact, self._clock()

    def all(self) -> Mapping[str, tuple[Fact, timedelta]]:
        """Return each by its name, and how long ago it was kept."""
        now_s = self._clock()
        return {name: (fact, timedelta(seconds=now_s - at_s)) for name, (fact, at_s) in self._facts.copy().items()}
