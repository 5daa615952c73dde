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
def ending_well() -> Iterator[None]:
    """Let a wish to end be the end of the block: whoever only looks is not cut off from anything."""

    def told(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, told)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
