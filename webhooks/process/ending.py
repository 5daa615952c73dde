"""One line in place of a trace: what keeps a process from starting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from webhooks.errors import NotPossible, WebhooksError


def end(error: WebhooksError) -> NoReturn:
    """End this process with one line."""
    sys.stderr.write(f"webhooks: {error}\n")
    sys.exit(2)


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Import what an extra of the installation brings; where that was left out, say which, and end."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or __name__).partition(".")[0]
        if missing == "webhooks":
            raise
        end(NotPossible(f"{missing} is not installed; run: pip install 'webhook-delivery-worker[{extra}]'"))
