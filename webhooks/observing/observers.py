"""Who hears what happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from webhooks.observing.facts import Fact
from webhooks.observing.outage import Outage
from webhooks.observing.surroundings import SinkFailed

Sink = Callable[[Fact], None]
"""Hears each fact in the thread in which it happened: quick, and safe to call from several threads."""


class Observers:
    """Hands each fact to all sinks. One that raises harms nobody: the others are told once, until it has worked."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = [(sink, Outage()) for sink in sinks]

    def join(self, sink: Sink) -> None:
        """Have one more hear what happens from now on."""
        self._sinks.append((sink, Outage()))

    def tell(self, fact: Fact) -> None:
        """Say what happened."""
        for sink, trouble in self._sinks:
            try:
                sink(fact)
            except Exception as error:  # a delivery must not end for what listens to it
                if trouble.failed():
                    self._tell_the_others(sink, error)
            else:
                trouble.worked()

    def _tell_the_others(self, failed: Sink, error: Exception) -> None:
        fact = SinkFailed(getattr(failed, "__qualname__", type(failed).__name__), f"{type(error).__name__}: {error}")
        Observers([sink for sink, _ in self._sinks if sink is not failed]).tell(fact)


NOBODY = Observers(())
"""For parts that are used alone."""
