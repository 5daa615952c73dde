"""How things stand, read now and then in threads of their own: nobody who asks for metrics waits for a part.

What could not be read is not there: an old number would say that all is well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhooks.errors import LedgerFault, Unavailable
from webhooks.observing.observers import Observers
from webhooks.observing.outage import Outage
from webhooks.observing.surroundings import MetricsUnread

Read = Callable[[], Sequence[Metric]]
"""Asks a part, in bounded time."""

_SHARE = 20  # a reading is followed by so many times as long without one: what becomes dear becomes rare
_GRACE = timedelta(seconds=5)  # past the next reading, in which a number still counts


class Meter:
    """Reads one part again and again. `vital`: that it can be read says that the part is there."""

    def __init__(
        self,
        part: str,
        read: Read,
        every: timedelta,
        observers: Observers,
        *,
        vital: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.part = part
        self.vital = vital
        self._read = read
        self._every_s = every.total_seconds()
        self._observers = observers
        self._clock = clock
        self._trouble = Outage()
        self._seen: tuple[float, bool, Sequence[Metric]] = (float("-inf"), False, ())

    def run(self, stopping: threading.Event) -> None:
        """Go on until the process is told to stop."""
        while not stopping.wait(self.look().total_seconds()):
            pass

    def look(self) -> timedelta:
        """Read once, and return how long to wait before the next time."""
        began_s = self._clock()
        answers, found = self._ask()
        ended_s = self._clock()
        wait_s = max(self._every_s, _SHARE * (ended_s - began_s))
        self._seen = (ended_s + wait_s + _GRACE.total_seconds(), answers, found)
        return timedelta(seconds=wait_s)

    def _ask(self) -> tuple[bool, Sequence[Metric]]:
        """Return whether the part answers, and what it said."""
        try:
            found = self._read()
        except Unavailable as error:
            if not (self.vital or error.told_once):
                self._say(error)
            return False, ()
        except Exception as error:  # whatever it is, the next reading may do better
            self._say(error)
            return isinstance(error, LedgerFault), ()
        self._trouble.worked()
        return True, found

    def _say(self, error: Exception) -> None:
        if self._trouble.failed():
            self._observers.tell(MetricsUnread(self.part, str(error) or type(error).__name__))

    @property
    def seen(self) -> tuple[bool, Sequence[Metric]] | None:
        """Whether the part answered, and what it said; None where that is too long ago."""
        until_s, answers, found = self._seen
        return (answers, found) if self._clock() < until_s else None


class Meters(Collector):
    """What the meters have seen last, as Prometheus collects it."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters

    def begin(self, stopping: threading.Event) -> None:
        """Have each read in a thread that ends with the process."""
        for meter in self._meters:
            threading.Thread(target=meter.run, args=(stopping,), name=f"reads {meter.part}", daemon=True).start()

    def collect(self) -> Iterator[Metric]:
        """Give what is known now."""
        reachable = GaugeMetricFamily(
            "webhooks_reachable", "1: it answered when it was last asked, a moment ago.", labels=["part"]
        )
        for meter in self._meters:
            if seen := meter.seen:
                answers, found = seen
                if meter.vital:
                    reachable.add_metric([meter.part], float(answers))
                yield from found
        yield reachable
