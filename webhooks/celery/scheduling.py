"""What beat does: a sweep a second where none waits already, and a sign in the broker that it is there to do it."""

from __future__ import annotations

import time
from functools import cached_property
from socket import gethostname
from typing import Any

from celery.beat import ScheduleEntry, Scheduler

from webhooks import parts
from webhooks.celery import broker
from webhooks.celery.app import SWEEP
from webhooks.celery.consuming import persistent
from webhooks.observing.facts import BrokerAway, BrokerBack, BrokerUser
from webhooks.observing.outage import Outage


class PersistentScheduler(Scheduler):  # type: ignore[misc]
    """Beat that goes by no wall clock, and sends again soon after the broker is back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._next_s: dict[str, float] = {}
        self._outage = Outage()
        super().__init__(*args, **kwargs)

    @cached_property
    def connection(self) -> Any:
        """The way to the broker."""
        return persistent(self.app.connection_for_write())

    def tick(self, *_: Any, **__: Any) -> float:
        """Send what is due, and return how many seconds there are until something is.

        Celery's own way compares wall clocks: set back by ten minutes, beat would send nothing for ten minutes.
        """
        for entry in list(self.schedule.values()):
            every_s, now_s = entry.schedule.run_every.total_seconds(), time.monotonic()
            if self._next_s.setdefault(entry.name, now_s + every_s) <= now_s:
                self._next_s[entry.name] = now_s + every_s
                self.apply_entry(entry, producer=self.producer)
        return max(min(self._next_s.values()) - time.monotonic(), 0.0)

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a message where none of its kind waits, and leave a sign of life. What fails is said once.

        One that waits does the same work. Having old ones expire would compare two hosts' clocks instead.
        """
        try:
            if not parts.lookout().is_waiting(SWEEP, entry.task):
                self.apply_async(entry, producer=producer, advance=False)
            broker.note_beat(self.app, gethostname())
        except Exception as error:  # a beat that ended would be one that stands still
            if self._outage.failed():
                parts.observers().tell(BrokerAway(BrokerUser.BEAT, str(error)))
        else:
            if self._outage.worked():
                parts.observers().tell(BrokerBack(BrokerUser.BEAT))
