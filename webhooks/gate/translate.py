"""Between the values that callers know and the words and microseconds that the scripts speak."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from webhooks.errors import GateUnavailable
from webhooks.gate.values import Admitted, Breaker, Busy, Held, MayProbe, MayRelease, Offer, Report, Slow, Wait
from webhooks.model import HeldFor
from webhooks.policy.breaker import BreakerRules, BreakerState

Reply = list[str]

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHY = {"lane": HeldFor.LANE, "rate": HeldFor.RATE}


def rules_as_json(rules: BreakerRules) -> str:
    """Return the rules as the scripts' ARGV[1]; whole numbers only, which Lua keeps exactly up to 2^53."""
    # Past the longest pause an endpoint that nobody asks about is forgotten; any use before that renews its keys.
    remembered = rules.pause + 2 * rules.max_pause + rules.window + rules.slot_lease + rules.lease
    burst = rules.burst or timedelta()
    return json.dumps(
        {
            "window_us": rules.window // _MICROSECOND,
            "buckets": rules.buckets,
            "bucket_us": -(-rules.window // rules.buckets // _MICROSECOND),
            "min_attempts": rules.min_attempts,
            "failure_percent": rules.failure_percent,
            "pause_us": min(rules.pause, rules.max_pause) // _MICROSECOND,
            "max_pause_us": rules.max_pause // _MICROSECOND,
            "lease_us": rules.lease // _MICROSECOND,
            "slot_lease_us": rules.slot_lease // _MICROSECOND,
            "lane": rules.lane,
            "narrow": rules.narrow,
            "remembered_quick_us": rules.remembered_quick // _MICROSECOND,
            "slow_after_us": rules.slow_after // _MICROSECOND,
            "remember_us": max(remembered, rules.remembered_quick, burst) // _MICROSECOND,
            **({"token_us": rules.token // _MICROSECOND, "burst_us": burst // _MICROSECOND} if rules.token else {}),
        }
    )


def as_admission(reply: Reply) -> Admitted | Held | Busy | Slow:
    """Read what `admit` answered."""
    match reply:
        case ["admitted", token]:
            return Admitted(token)
        case ["probe", token]:
            return Admitted(token, probe=True)
        case ["paused", until]:
            return Held(HeldFor.BREAKER, _moment(until))
        case ["lane" | "rate" as why]:
            return Held(_WHY[why])
        case ["slow", slot]:
            return Slow(slot)
        case ["busy"]:
            return Busy()
        case _:
            raise _not_understood(reply)


def as_report(reply: Reply) -> Report:
    """Read what `report` answered."""
    match reply:
        case ["opened" | "closed" | "same" as moved, "slow" | "quick" as queue, *slots]:
            return Report(moved == "opened", moved == "closed", tuple(slots), slow=queue == "slow")
        case _:
            raise _not_understood(reply)


def as_offer(reply: Reply) -> Offer:
    """Read what `offer` answered."""
    match reply:
        case ["wait"]:
            return Wait()
        case ["probe", "slow" | "quick" as queue, slot]:
            return MayProbe(slot, slow=queue == "slow")
        case ["release", "slow" | "quick" as queue, *slots]:
            return MayRelease(tuple(slots), slow=queue == "slow")
        case _:
            raise _not_understood(reply)


def as_breaker(endpoint_id: str, reply: Reply) -> Breaker:
    """Read what `show` answered; an empty text stands for what is not there."""
    state, since, pause, until, probe, release, *numbers, queue = reply
    successes, failures, in_flight, slots, width, pace = map(int, numbers)
    return Breaker(
        endpoint_id=endpoint_id,
        state=BreakerState(state),
        since=_moment(since),
        pause=int(pause) * _MICROSECOND if pause else None,
        until=_moment(until),
        probe=probe or None,
        successes=successes,
        failures=failures,
        in_flight=in_flight,
        slots=slots,
        release=int(release) if release else None,
        width=width,
        pace=pace * _MICROSECOND,
        slow=queue == "slow",
    )


def as_took(took: timedelta | None) -> str:
    """Write how long a POST took; an empty text stands for none."""
    return "" if took is None else str(max(took // _MICROSECOND, 0))


def _moment(stamp_us: str) -> datetime | None:
    return _EPOCH + int(stamp_us) * _MICROSECOND if stamp_us else None


def _not_understood(reply: Reply) -> GateUnavailable:
    return GateUnavailable(f"the gate answered {reply!r}, which this version does not understand")
