"""Who is at this terminal."""

from __future__ import annotations

import getpass
import os

from webhooks.model import Operator


def operator(why: str | None = None) -> Operator:
    """Name the person at this terminal: who became root is told by sudo."""
    try:
        return Operator(os.environ.get("SUDO_USER") or getpass.getuser(), why)
    except (KeyError, OSError):  # a container's user needs no name
        return Operator(f"uid {os.getuid()}", why)
