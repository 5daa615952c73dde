"""A process's log. For programs each line is one JSON object, whoever of it wrote that, we, Celery or a library."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

from webhooks.observing.log import Line

AS_OTHERS = logging.NOTSET
"""Whatever this process logs, facts are logged from the same level on."""


class JsonLines(logging.Formatter):
    """Writes a record as one JSON object in ASCII: its time (UTC, in ms), level, logger, and what it says.

    A fact says its `name` and its fields; anything else a `message`, and an error its `trace`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._second: tuple[int, str] = (0, "")  # written out once for all lines of it

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        told: dict[str, Any] = {"time": self._time(record), "level": record.levelname, "logger": record.name}
        told |= record.msg.told() if isinstance(record.msg, Line) else {"message": record.getMessage()}
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)

    def _time(self, record: logging.LogRecord) -> str:
        second, milliseconds = divmod(int(record.created * 1000), 1000)
        known, text = self._second
        if known != second:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second, text
        return f"{text}.{milliseconds:03d}Z"


def begin(*, facts_from: int = logging.INFO) -> None:
    """Have this process write its log so, to standard error: facts from a level on, of all others what is wrong."""
    _begin(JsonLines(), facts_from)


def begin_for_people() -> None:
    """Have this process write its log as workers do for people, to standard error, with moments in UTC."""
    formatter = logging.Formatter("[%(asctime)s: %(levelname)s] %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    _begin(formatter, logging.INFO)


def _begin(formatter: logging.Formatter, facts_from: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("webhooks").setLevel(facts_from)
    logging.captureWarnings(True)


def say(message: str, f: Any = sys.__stderr__) -> None:
    """Write one line past the logging, which a signal's handler must not use; in the place of Celery's `safe_say`."""
    record = logging.LogRecord("celery", logging.WARNING, "", 0, message, None, None)
    os.write(f.fileno(), f"{JsonLines().format(record)}\n".encode())
