"""A gate for thousands of steps: each call brings the test's time along and looks at what came of it, in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from redis.exceptions import ResponseError

from tests.gate.clock import START_US
from webhooks.errors import GateUnavailable
from webhooks.gate.gate import Gate
from webhooks.gate.scripts import compose
from webhooks.gate.translate import Reply
from webhooks.gate.values import NOBODYS, LimitsOf
from webhooks.model import NO_LIMITS, Limits
from webhooks.policy.breaker import BreakerRules

_CLOCK = "local function now_us()\n  return cjson.decode(ARGV[1]).now_us\nend\n"


class Watched(Gate):
    """The gate's own scripts under another clock; `parts` replaces some of them. `show` tells what was seen last."""

    def __init__(self, redis_url: str, rules: BreakerRules, parts: Mapping[str, str] | None = None) -> None:
        super().__init__(redis_url, rules, compose({"clock": _CLOCK, **(parts or {})}))
        self.now_us = START_US
        self._seen: Reply = []
        self._line: Any = self._redis.connection_pool.get_connection()
        self._ask(*(("SCRIPT", "LOAD", script.text) for script in self._scripts.values()))

    def close(self) -> None:
        """Close the connection."""
        self._line.disconnect()
        super().close()

    def _run(self, operation: str, endpoint_id: str, *args: str, limits: Limits = NO_LIMITS) -> Reply:
        if operation != "show":
            *names, rules = self._call(endpoint_id, limits)
            rules = f'{rules.removesuffix("}")}, "now_us": {self.now_us}}}'
            call = (*names, rules)
            asked = ("EVALSHA", self._scripts[operation].sha, *call, *args)
            reply, self._seen = self._ask(asked, ("EVALSHA", self._scripts["show"].sha, *call))
            return reply
        return self._seen

    def _run_for_all(self, operation: str, endpoint_ids: Sequence[str], limits: LimitsOf = NOBODYS) -> Sequence[Reply]:
        return [
            self._run(operation, endpoint_id, limits=limits.get(endpoint_id, NO_LIMITS)) for endpoint_id in endpoint_ids
        ]

    def _ask(self, *commands: tuple[str | int, ...]) -> list[Reply]:
        self._line.send_packed_command(self._line.pack_commands(commands))
        replies, failed = [], None
        for _ in commands:
            try:
                replies.append(self._line.read_response())
            except ResponseError as error:
                failed = error
        if failed:
            raise GateUnavailable(f"a script failed: {failed}")
        return cast("list[Reply]", replies)
