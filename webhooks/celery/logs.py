"""The log of worker and beat: one line for each attempt, moments in UTC with their zone, and no body (I9).

With WEBHOOKS_LOG=json each line is one JSON object, whatever formats a deployment sets, and Celery prints nothing else.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from typing import Any

from celery.app.log import Logging
from celery.app.trace import LOG_RETRY
from celery.states import FAILURE, IGNORED, RETRY
from celery.utils.log import ColorFormatter, mlevel

from webhooks.observing import lines
from webhooks.process.stacks import stacks

FOR_PROGRAMS = "%(json)s"
"""In place of a format: lines for programs."""

# At INFO an attempt has its own line, `delivery.attempted`; Celery's two beside it would only say the same again.
_SAYS_IT_AGAIN = ("celery.worker.strategy", "celery.app.trace")
# At DEBUG the pool writes a task's arguments; those of an event by name are its body.
_SAYS_TOO_MUCH = "celery.pool"
_ENDED = {RETRY: LOG_RETRY, FAILURE: "Task %(name)s[%(id)s] failed: %(exc)s", IGNORED: "Task %(name)s[%(id)s] ignored"}


def _as_it_ended(record: logging.LogRecord) -> bool:
    """Say of a task that returned what it waits for, or why it failed, that it did so: for Celery it has succeeded."""
    data = getattr(record, "data", {})
    state, _, words = str(data.get("return_value")).partition(" ")
    if state in _ENDED:
        record.msg, record.args = _ENDED[state], {**data, "exc": words}
    return True


def _mind_signals(*, for_programs: bool) -> None:
    """Have a worker's handlers of signals say what may stand in a log, as the log is written."""
    worker = sys.modules.get("celery.apps.worker")
    if worker:
        vars(worker)["cry"] = stacks  # at SIGUSR1; Celery's shows variables, too
        if for_programs:
            vars(worker)["safe_say"] = lines.say  # such as that the worker ends


class Logs(Logging):  # type: ignore[misc]
    """Celery's logging with these habits; the formats and levels that a deployment sets count."""

    def setup(self, loglevel: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Set up logging once a process."""
        handled = super().setup(loglevel, *args, **kwargs)
        brief = mlevel(loglevel or self.loglevel) == logging.INFO
        for name in _SAYS_IT_AGAIN:
            logging.getLogger(name).setLevel(logging.WARNING if brief else logging.NOTSET)
        logging.getLogger(_SAYS_TOO_MUCH).setLevel(logging.INFO)
        logging.getLogger("celery.app.trace").addFilter(_as_it_ended)
        # Five lines at each reconnecting, about a setting that has been decided upon.
        warnings.filterwarnings("ignore", message=r"\s*In Celery 5\.1 we introduced")
        _mind_signals(for_programs=self.format == FOR_PROGRAMS)
        return handled

    def setup_handlers(self, logger: Any, logfile: Any, format: str, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        """Add a handler whose moments read `2025-01-31T23:59:59.123Z`."""
        super().setup_handlers(logger, logfile, format, *args, **kwargs)
        for handler in logger.handlers:
            formatter = handler.formatter
            if format == FOR_PROGRAMS:
                handler.setFormatter(lines.JsonLines())
            elif isinstance(formatter, ColorFormatter):
                formatter.converter = time.gmtime
                formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
        return logger
