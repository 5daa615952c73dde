"""The gate: one question before an attempt, one report after it, and the sweep's offers, all agreed upon in Redis.

Every call is one round trip to a Lua script, which reads the server's clock. Everything here raises GateUnavailable
when Redis cannot be reached or used; `resilient.py` is for callers who go on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from webhooks.errors import GateUnavailable
from webhooks.gate import keys, translate
from webhooks.gate.scripts import Script, compose
from webhooks.gate.translate import Reply
from webhooks.gate.values import NOBODYS, Admitted, Breaker, Busy, Held, LimitsOf, Offer, Report, Slow
from webhooks.model import NO_LIMITS, Limits
from webhooks.observing import facts
from webhooks.observing.observers import NOBODY, Observers
from webhooks.policy.breaker import BreakerRules, Effect
from webhooks.process import redis_url

_TIMEOUT_S = 1.0
_PAGE = 500
_KINDS = 1000  # of limits, whose rules are kept as they are sent


class Gate:
    """The breakers and lanes of all endpoints. Connects when first used; threads and forked children may share it."""

    def __init__(
        self,
        url: str,
        rules: BreakerRules,
        scripts: Mapping[str, Script] | None = None,
        *,
        namespace: str = "",
        observers: Observers = NOBODY,
    ) -> None:
        where = redis_url.read(url)
        self._redis = Redis.from_url(
            where.plain,
            **where.tls,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            # A script that was sent may have run: a lost answer is a fault and no reason to send it again.
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            decode_responses=True,
        )
        self._scripts = scripts or compose()
        self._namespace = namespace
        self._observers = observers
        self._rules_with = lru_cache(_KINDS)(lambda limits: translate.rules_as_json(rules.with_limits(limits)))

    def admit(
        self,
        endpoint_id: str,
        delivery_id: str,
        slot: str | None = None,
        limits: Limits = NO_LIMITS,
        *,
        slow: bool = False,
    ) -> Admitted | Held | Busy | Slow:
        """Ask whether an attempt may start now; if so, the delivery is leased for `rules.lease`.

        `slot` is what the message carries, if anything, `limits` the endpoint's own, and `slow` whether it came through
        the queue of the slow endpoints; only then it is admitted to one, and otherwise a place is kept for it there.
        """
        queue = "slow" if slow else "quick"
        return translate.as_admission(self._run("admit", endpoint_id, delivery_id, slot or "", queue, limits=limits))

    def report(
        self,
        endpoint_id: str,
        admitted: Admitted,
        effect: Effect,
        limits: Limits = NO_LIMITS,
        took: timedelta | None = None,
    ) -> Report:
        """Tell how an admitted attempt went: its lease ends, the window counts, the breaker moves.

        From how long its POST `took` is learnt how the endpoint answers; from None, nothing. A second report, or one
        that comes after the lease ran out, changes nothing.
        """
        if admitted.token is None:
            return Report()
        told = admitted.token, effect, translate.as_took(took)
        return translate.as_report(self._run("report", endpoint_id, *told, limits=limits))

    def offer(self, endpoint_ids: Iterable[str], limits: LimitsOf = NOBODYS) -> dict[str, Offer]:
        """Ask for each endpoint with held deliveries what may be done with them now; one round trip for all.

        `limits` holds those of the endpoints that have their own.
        """
        asked = list(dict.fromkeys(endpoint_ids))
        return dict(zip(asked, map(translate.as_offer, self._run_for_all("offer", asked, limits)), strict=True))

    def drained(self, endpoint_id: str, unused: Sequence[str] = ()) -> None:
        """Say that no delivery of this endpoint is held any more, and give back the slots that found none."""
        self._run("drained", endpoint_id, *unused)

    def all_drained(self, unused: Mapping[str, Sequence[str]]) -> None:
        """Say so of several endpoints; one round trip for all."""
        self._run_calls("drained", [self._call(name, NO_LIMITS, *slots) for name, slots in unused.items()])

    def reset(self, endpoint_id: str) -> None:
        """Close the breaker and forget what was counted; what is in flight stays so, and its outcome counts nowhere."""
        self._run("reset", endpoint_id)
        self._observers.tell(facts.BreakerReset(endpoint_id))

    def show(self, endpoint_id: str) -> Breaker:
        """Return how an endpoint stands; nothing is changed."""
        return translate.as_breaker(endpoint_id, self._run("show", endpoint_id))

    def check_write(self) -> None:
        """Write something that is gone in a second: a server that takes no writes answers all other questions."""
        with _faults_named():
            self._redis.set(keys.check_of(self._namespace), "", px=1000)

    def list(self) -> tuple[Breaker, ...]:
        """Return the endpoints that are paused, probing or draining, in the order of their ids.

        It scans the whole key space of one server; on a Redis Cluster that is one node's.
        """
        with _faults_named():
            states = self._redis.scan_iter(match=keys.all_states(self._namespace), count=_PAGE)
            found = sorted({keys.endpoint_of(key, self._namespace) for key in states})
        breakers = map(translate.as_breaker, found, self._run_for_all("show", found))
        return tuple(breaker for breaker in breakers if not breaker.quiet)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._redis.close()

    def _run(self, operation: str, endpoint_id: str, *args: str, limits: Limits = NO_LIMITS) -> Reply:
        script, call = self._scripts[operation], self._call(endpoint_id, limits, *args)
        with _faults_named():
            try:
                reply = self._redis.evalsha(script.sha, *call)
            except NoScriptError:
                reply = self._redis.eval(script.text, *call)
        return cast("Reply", reply)

    def _run_for_all(self, operation: str, endpoint_ids: Sequence[str], limits: LimitsOf = NOBODYS) -> Sequence[Reply]:
        calls = [self._call(endpoint_id, limits.get(endpoint_id, NO_LIMITS)) for endpoint_id in endpoint_ids]
        return self._run_calls(operation, calls)

    def _run_calls(self, operation: str, calls: Sequence[tuple[Any, ...]]) -> Sequence[Reply]:
        with _faults_named():
            replies = self._pipeline(operation, calls)
            unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if unknown:
                # Those have not run; the others have, and must not run twice.
                again = self._pipeline(operation, [calls[at] for at in unknown], load=True)
                replies = [again.pop(0) if isinstance(reply, NoScriptError) else reply for reply in replies]
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return cast("Sequence[Reply]", replies)

    def _pipeline(self, operation: str, calls: Sequence[tuple[Any, ...]], *, load: bool = False) -> Any:
        script = self._scripts[operation]
        with self._redis.pipeline(transaction=False) as pipeline:
            if load:
                pipeline.script_load(script.text)
            for call in calls:
                pipeline.evalsha(script.sha, *call)
            return pipeline.execute(raise_on_error=False)[int(load) :]

    def _call(self, endpoint_id: str, limits: Limits, *args: str) -> tuple[Any, ...]:
        names = keys.keys_of(endpoint_id, self._namespace)
        return len(names), *names, self._rules_with(limits), *args


@contextmanager
def _faults_named() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise GateUnavailable(f"the gate's Redis cannot be used: {error}") from error
