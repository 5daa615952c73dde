"""Who is at this terminal."""

from __future__ import annotations

import getpass
import os

from webhooks.errors import NotPossible
from webhooks.model import Operator


def operator(why: str | None = None) -> Operator:
    """Name the person at this terminal: who became root is told by sudo.

    Raises NotPossible for a reason that says nothing.
    """
    if why is not None and not why.strip():
        raise NotPossible("say --why in words: it is written into the audit")
    try:
        return Operator(os.environ.get("SUDO_USER") or getpass.getuser(), why)
    except (KeyError, OSError):  # a container's user needs no name
        return Operator(f"uid {os.getuid()}", why)
