"""Where the time of one POST goes, for a person who looks: an ordinary attempt is not watched in this way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from webhooks.model import Answer, Refusal, Silence
from webhooks.wire.addresses import Target
from webhooks.wire.deadline import Deadline, Phase
from webhooks.wire.resolver import Names


@dataclass(frozen=True, slots=True)
class Traced:
    """What came of a POST on a fresh connection, where that leads to, and how long each phase took.

    `target` is None for a URL that leads nowhere, `addresses` are what its name was resolved to; None is how long a
    phase took that was not reached.
    """

    result: Answer | Silence | Refusal
    target: Target | None
    addresses: Sequence[str]
    phases: Mapping[Phase, timedelta | None]


class TracedDeadline(Deadline):
    """A deadline that notes when each phase begins."""

    def __init__(self, length: timedelta) -> None:
        super().__init__(length)
        self._spent: dict[Phase, float] = {}
        self._since = time.monotonic()

    def enter(self, phase: Phase) -> float:
        """Begin a phase, which may be the one that it is in: the next of several addresses is tried."""
        left = super().remaining()
        self._count()
        self.phase = phase
        return left

    def phases(self) -> Mapping[Phase, timedelta | None]:
        """Return how long each took by now."""
        self._count()
        spent = {phase: timedelta(seconds=seconds) for phase, seconds in self._spent.items()}
        return {phase: spent.get(phase) for phase in Phase}

    def _count(self) -> None:
        now = time.monotonic()
        self._spent[self.phase] = self._spent.get(self.phase, 0.0) + now - self._since
        self._since = now


class TracedNames:
    """Looks names up, and keeps what one of them led to: a proxy has a name, too."""

    def __init__(self, names: Names, host: str | None) -> None:
        self._names = names
        self._host = host
        self.addresses: Sequence[str] = ()

    def lookup(self, host: str, deadline: Deadline) -> Sequence[str]:
        """As what it looks up with."""
        found = self._names.lookup(host, deadline)
        if host == self._host:
            self.addresses = tuple(found)
        return found
