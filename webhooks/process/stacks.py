"""What each thread of this process is at, for whoever wonders why it stands still."""

from __future__ import annotations

import sys
import threading
import traceback

HEADING = "what each thread is at:"


def stacks() -> str:
    """Return every thread's name and stack; none of the variables, among which are bodies and secrets (I9)."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    # Those that Python does not know are left-overs of a fork.
    frames = {names[ident]: frame for ident, frame in sys._current_frames().items() if ident in names}  # noqa: SLF001
    each = (f"{name}\n{''.join(traceback.format_stack(frame))}" for name, frame in frames.items())
    return "\n".join((HEADING, *each))
