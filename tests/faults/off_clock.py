"""A program whose wall clock is off by so many seconds: `python -m tests.faults.off_clock 600 celery …`."""

from __future__ import annotations

import runpy
import sys
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


def set_off(seconds: float) -> None:
    """Put what this process takes for the time forward, or back."""
    off, now_s = timedelta(seconds=seconds), time.time

    def off_time() -> float:
        return now_s() + seconds

    class OffDatetime(datetime, metaclass=_Kind):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + off

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now()

    instead: dict[int, Any] = {id(datetime): OffDatetime, id(now_s): off_time}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in {"celery", "kombu", "webhooks", "time"}:
            for key, value in list(vars(module).items()):
                if id(value) in instead:
                    setattr(module, key, instead[id(value)])


if __name__ == "__main__":
    set_off(float(sys.argv.pop(1)))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
