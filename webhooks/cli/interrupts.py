"""Ctrl-C and SIGTERM, for commands that must not be cut off from an answer, and for those that go on until then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[threading.Event]:
    """Let a wish to end wait for the end of the block, and tell it by the event: what was under way is done anyway."""
    told = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(how, lambda *_: told.set()) for how in signals]
    try:
        yield told
    finally:
        for how, handler in zip(signals, before, strict=True):
            signal.signal(how, handler)


@contextmanager
def ending_well() -> Iterator[threading.Event]:
    """Let a wish to end be the end of the block: whoever only looks is not cut off from anything.

    It is told by the event as well: what is raised may come where nobody can hand it on, such as in a destructor.
    """
    wished = threading.Event()

    def wish(*_: object) -> None:
        wished.set()
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(how, wish) for how in signals]
    try:
        yield wished
    except KeyboardInterrupt:
        return
    finally:
        for how, handler in zip(signals, before, strict=True):
            signal.signal(how, handler)
