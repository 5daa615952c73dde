"""The watchdog's thread: it wakes up for what is late, and for nothing else."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

import pytest

from webhooks.demo.stage import wait_until
from webhooks.process.watchdog import Watchdog


@dataclass(frozen=True)
class End:
    """A deadline."""

    at: float


def test_what_was_released_wakes_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand statements a second are a thousand deadlines, and a thread that woke up for each would slow them."""
    watchdog = Watchdog()
    one, other = socket.socketpair()
    woken: list[float | None] = []
    wait = watchdog._changed.wait

    def counting(timeout: float | None = None) -> bool:
        woken.append(timeout)
        return wait(timeout)

    monkeypatch.setattr(watchdog._changed, "wait", counting)
    with one, other:
        now_s = time.monotonic()
        for number in range(500):
            watchdog.start(one, End(now_s + 0.1 + number / 5000)).release()
        late = watchdog.start(other, End(now_s + 0.25))
        wait_until(lambda: late.late, "what is not released is cut")
        late.release()
    watchdog.close()
    assert len(woken) < 10


def test_what_comes_after_them_is_cut_in_time() -> None:
    """Those that were released are forgotten, and no other."""
    watchdog = Watchdog()
    one, other = socket.socketpair()
    with one, other:
        watchdog.start(one, End(time.monotonic())).release()
        watch = watchdog.start(other, End(time.monotonic()))
        assert one.recv(1) == b""
        assert watch.late
        watch.release()
    watchdog.close()
