"""Who is at this terminal."""

from __future__ import annotations

import getpass
import os

from webhooks.errors import NotPossible
from webhooks.model import Operator

LONGEST_WHY = 500


def operator(why: str | None = None) -> Operator:
    """Name the person at this terminal: who became root is told by sudo.

    Raises NotPossible where `why` says nothing, or what cannot be read in a line.
    """
    if why is not None and not (why.strip() and why.isprintable() and len(why) <= LONGEST_WHY):
        raise NotPossible(f"--why is a reason for the audit: 1 to {LONGEST_WHY} printable characters")
    try:
        return Operator(os.environ.get("SUDO_USER") or getpass.getuser(), why)
    except (KeyError, OSError):  # a container's user needs no name
        return Operator(f"uid {os.getuid()}", why)
