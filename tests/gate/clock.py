"""A clock that the test sets, in place of the server's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import redis

from tests.breaker_model import US, moment
from webhooks.gate.scripts import Script, compose

_KEY = "clock"
_LUA = f"local function now_us()\n  return tonumber(redis.call('GET', '{_KEY}'))\nend\n"
START_US = 1_796_092_638_234_567  # the sixteen digits of a stamp of today, none of them round


def scripts_under_test(parts: Mapping[str, str] | None = None) -> dict[str, Script]:
    """Return the gate's scripts reading the test's clock; nothing else differs from what ships, except `parts`."""
    return compose({"clock": _LUA, **(parts or {})})


class Clock:
    """What the scripts under test read; it stands still where it is set.

    The server's clock never shows two calls the same microsecond, and names are made from that: let a microsecond
    pass where a test makes two names of a kind.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.now_us = START_US
        self.set(START_US)

    @property
    def now(self) -> datetime:
        """The moment it shows."""
        return moment(self.now_us)

    def set(self, now_us: int) -> None:
        """Show this moment."""
        self.now_us = now_us
        self._client.set(_KEY, now_us)

    def advance(self, wait: timedelta) -> None:
        """Let time pass."""
        self.set(self.now_us + wait // US)
