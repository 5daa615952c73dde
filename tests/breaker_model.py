"""The gate of one merchant in plain Python, with the clock as an argument: what the Lua is compared with.

It is written from the rules and keeps whole lists where the Lua keeps packed counters and sorted sets.
Times are microseconds; what ends at t is over when the clock says t.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil

from webhooks.gate.values import Admitted, Breaker, Busy, Held, MayProbe, MayRelease, Offer, Report, Slow, Wait
from webhooks.model import HeldFor
from webhooks.policy.breaker import BreakerRules, BreakerState, Effect

US = timedelta(microseconds=1)


def moment(stamp_us: int) -> datetime:
    """Return the aware moment of a stamp in microseconds, exactly."""
    return datetime(1970, 1, 1, tzinfo=UTC) + stamp_us * US


@dataclass
class BreakerModel:
    """One merchant. Every call takes `now` in microseconds and says what the gate must say."""

    rules: BreakerRules
    state: BreakerState = BreakerState.WORKING
    epoch: int = 0
    pause: timedelta | None = None
    pause_ends: int = 0
    offered_until: int = 0  # the probe that was offered and has not come yet
    prober: Admitted | None = None
    release: int | None = None
    leases: dict[str, tuple[int, Admitted]] = field(default_factory=dict)  # delivery id → end, admission
    slots: dict[str, int] = field(default_factory=dict)  # slot → end
    counted: list[tuple[int, bool]] = field(default_factory=list)  # bucket, failed
    width: int | None = None  # what it has earned
    heard: int | None = None  # when it last answered, or failed quickly
    pace: int = 0
    tokens: Fraction | None = None  # at that time; None while nobody has paid with one
    paid: int = 0

    def admit(self, now: int, delivery: str, slot: str | None, *, slow: bool) -> Admitted | Held | Busy | Slow:
        """Say whether an attempt may start now."""
        self._forget_what_ended(now)
        if delivery in self.leases:
            return Busy()
        if self.state is BreakerState.WORKING:
            why = self._why_no_place(now, slot)
            if why:
                return Held(why)
            return self._lease(now, delivery) if slow or not self._is_slow(now) else Slow(self._keep(now, 1)[0])
        if self._probe_due(now, slot) > now:
            return Held(HeldFor.BREAKER, moment(self.pause_ends) if self.state is BreakerState.PAUSED else None)
        if self._is_slow(now) and not slow:
            return Slow(self._offer_probe(now))
        self.state, self.offered_until = BreakerState.PROBING, 0
        self.prober = self._lease(now, delivery, probe=True)
        return self.prober

    def report(self, now: int, admitted: Admitted, effect: Effect, took: timedelta | None) -> Report:
        """Hear how it went."""
        self._forget_what_ended(now)
        holder = next((delivery for delivery, (_, lease) in self.leases.items() if lease == admitted), None)
        if holder is None:
            return Report()
        del self.leases[holder]
        if took is not None and effect is not Effect.NOTHING:
            self._learn(now, effect, took // US)
        return replace(self._move(now, admitted, effect), slow=self._is_slow(now))

    def offer(self, now: int) -> Offer:
        """Say what may be done with held deliveries."""
        self._forget_what_ended(now)
        if self.state is BreakerState.WORKING:
            self.release = self.rules.lane if self.release is None else self.release
            slots = self._grant(now, self.rules.lane)
            return MayRelease(slots, slow=self._is_slow(now)) if slots else Wait()
        if self._probe_due(now, None) > now:
            return Wait()
        return MayProbe(self._offer_probe(now), slow=self._is_slow(now))

    def drained(self, unused: tuple[str, ...]) -> None:
        """Nothing is held any more."""
        self.release = None
        for slot in unused:
            self.slots.pop(slot, None)
            if slot == f"probe:{self.offered_until}":
                self.offered_until = 0

    def reset(self, now: int) -> None:
        """Start anew."""
        self._work_from(now)
        self.slots.clear()
        self.release = None

    def show(self, now: int, merchant_id: str) -> Breaker:
        """Say how it stands."""
        failures = [failed for bucket, failed in self.counted if bucket > self._bucket(now) - self.rules.buckets]
        lease = next((lease for lease in self.leases.items() if lease[1][1] == self.prober), None)
        return Breaker(
            endpoint_id=merchant_id,
            state=self.state,
            since=moment(self.epoch) if self.epoch else None,
            pause=self.pause,
            until=moment(self.pause_ends) if self.pause else None,
            probe=lease[0] if lease and lease[1][0] > now else None,
            successes=failures.count(False),
            failures=failures.count(True),
            in_flight=sum(end > now for end, _ in self.leases.values()),
            slots=sum(end > now for end in self.slots.values()),
            release=self.release,
            width=self._width_now(now),
            pace=self.pace * US,
            slow=self._is_slow(now),
        )

    def moments_of_interest(self) -> set[int]:
        """Return when something ends or leaves the window: a walk steps to these and to either side of them."""
        width = self._bucket_width
        ends = {self.pause_ends, self.offered_until, *self.slots.values(), *(end for end, _ in self.leases.values())}
        slow = {since + self.rules.slow_after // US for since in (*self._started(), self.heard or 0)}
        forgotten = {(self.heard or 0) + self.rules.remembered_quick // US}
        return ends | slow | forgotten | {(bucket + self.rules.buckets) * width for bucket, _ in self.counted}

    def moment_of_tokens(self, number: int) -> int:
        """Return when its rate will allow so many attempts."""
        if self.tokens is None or self.rules.token is None:
            return 0
        return self.paid + ceil((number - self.tokens) * (self.rules.token // US))

    def _why_no_place(self, now: int, slot: str | None) -> HeldFor | None:
        if slot and self.slots:
            oldest = min(self.slots, key=lambda kept: (self.slots[kept], kept))
            del self.slots[slot if slot in self.slots else oldest]
            return None
        why = None
        if self._tokens_now(now) < 1:
            why = HeldFor.RATE
        elif self._room(now) < 1 or (self.release is not None and not slot):
            why = HeldFor.LANE
        if why is None:
            self._pay(now, 1)
        elif self.release is None:
            self.release = self.rules.lane
        return why

    def _started(self) -> list[int]:
        return [end - self.rules.lease // US for end, _ in self.leases.values()]

    def _is_slow(self, now: int) -> bool:
        started = [now - since for since in self._living(now)]
        return max([self.pace, *started]) >= self.rules.slow_after // US

    def _living(self, now: int) -> list[int]:
        return [since for since in self._started() if since + self.rules.lease // US > now]

    def _width_now(self, now: int) -> int:
        """Return what it has earned, unless that is long ago, or nothing at all came from it for a while."""
        living = self._living(now)
        if living and all(now - since >= self.rules.slow_after // US for since in (min(living), self.heard or 0)):
            return self.rules.narrow
        return self._earned(now)

    def _earned(self, now: int) -> int:
        if self.heard is None or self.width is None or now >= self.heard + self.rules.remembered_quick // US:
            return self.rules.narrow
        return self.width

    def _learn(self, now: int, effect: Effect, took: int) -> None:
        self.pace = (self.pace * 3 + took) // 4
        if effect is not Effect.FAILURE:
            self.width, self.heard = min(self._earned(now) + 1, self.rules.lane), now
        elif took < self.rules.slow_after // US:
            self.width, self.heard = min(self._earned(now), self.rules.lane), now
        else:
            self.width = self.rules.narrow

    def _room(self, now: int) -> int:
        places = [self.rules.lane, self._width_now(now), *([] if self.release is None else [self.release])]
        return min(places) - len(self.leases) - len(self.slots)

    def _tokens_now(self, now: int) -> Fraction:
        """Return as many as have come since somebody paid, at most those of a second, or one."""
        if not self.rules.token or not self.rules.burst:
            return Fraction(self.rules.lane)
        most = Fraction(self.rules.burst // US, self.rules.token // US)
        return (
            most if self.tokens is None else min(self.tokens + Fraction(now - self.paid, self.rules.token // US), most)
        )

    def _pay(self, now: int, number: int) -> None:
        if self.rules.token:
            self.tokens, self.paid = self._tokens_now(now) - number, now

    def _move(self, now: int, admitted: Admitted, effect: Effect) -> Report:
        if self.state is BreakerState.WORKING:
            return self._hear(now, effect) if self._is_of_this_epoch(admitted) else Report()
        if admitted != self.prober:
            return Report()
        self.prober = None
        return self._hear_probe(now, effect)

    def _offer_probe(self, now: int) -> str:
        self.state, self.prober = BreakerState.PROBING, None
        self.offered_until = now + self.rules.slot_lease // US
        return f"probe:{self.offered_until}"

    def _probe_due(self, now: int, slot: str | None) -> int:
        if self.state is BreakerState.PAUSED:
            return self.pause_ends
        if self.prober:
            return next((end for end, lease in self.leases.values() if lease == self.prober), now)
        return now if slot and slot.startswith("probe:") else self.offered_until

    def _lease(self, now: int, delivery: str, *, probe: bool = False) -> Admitted:
        end = now + self.rules.lease // US
        admitted = Admitted(f"{self.epoch}:{end}:{delivery}", probe)
        self.leases[delivery] = end, admitted
        return admitted

    def _hear(self, now: int, effect: Effect) -> Report:
        if effect is Effect.NOTHING:
            return Report()
        self.counted.append((self._bucket(now), effect is Effect.FAILURE))
        self.counted = [one for one in self.counted if one[0] > self._bucket(now) - self.rules.buckets]
        if effect is Effect.FAILURE and self._trips():
            self._pause(now, min(self.rules.pause, self.rules.max_pause))
            self._begin_epoch(now)
            self.slots.clear()
            self.release = None
            return Report(opened=True)
        return Report(slots=self._go_on(now, effect))

    def _trips(self) -> bool:
        share = Fraction(sum(failed for _, failed in self.counted), len(self.counted))
        return len(self.counted) >= self.rules.min_attempts and share >= Fraction(self.rules.failure_percent, 100)

    def _go_on(self, now: int, effect: Effect) -> tuple[str, ...]:
        if self.release is None:
            return ()
        if effect is Effect.SUCCESS:
            self.release = min(self.release + 1, self.rules.lane)
            return self._grant(now, 2)
        self.release = max(self.release // 2, 1)
        return ()

    def _hear_probe(self, now: int, effect: Effect) -> Report:
        match effect:
            case Effect.SUCCESS | Effect.THROTTLED:
                self._work_from(now)
                self.release = 1
                return Report(closed=True, slots=self._grant(now, 1) if effect is Effect.SUCCESS else ())
            case Effect.FAILURE:
                assert self.pause
                self._pause(now, min(self.pause * 2, self.rules.max_pause))
            case Effect.NOTHING:
                pass
        return Report()

    def _pause(self, now: int, pause: timedelta) -> None:
        self.state, self.pause, self.pause_ends = BreakerState.PAUSED, pause, now + pause // US

    def _work_from(self, now: int) -> None:
        self.state, self.pause, self.pause_ends, self.offered_until = BreakerState.WORKING, None, 0, 0
        self.prober = None
        self.counted.clear()
        self._begin_epoch(now)

    def _grant(self, now: int, limit: int) -> tuple[str, ...]:
        number = max(min(self._room(now), limit, int(self._tokens_now(now))), 0)
        self._pay(now, number)
        return self._keep(now, number)

    def _keep(self, now: int, number: int) -> tuple[str, ...]:
        end = now + self.rules.slot_lease // US
        slots = tuple(f"slot:{end}:{nth + 1}" for nth in range(number))
        self.slots.update(dict.fromkeys(slots, end))
        return slots

    def _forget_what_ended(self, now: int) -> None:
        self.leases = {delivery: lease for delivery, lease in self.leases.items() if lease[0] > now}
        self.slots = {slot: end for slot, end in self.slots.items() if end > now}

    def _begin_epoch(self, now: int) -> None:
        self.epoch = max(now, self.epoch + 1)

    def _is_of_this_epoch(self, admitted: Admitted) -> bool:
        assert admitted.token
        return admitted.token.split(":")[0] == str(self.epoch)

    @property
    def _bucket_width(self) -> int:
        return -(-(self.rules.window // US) // self.rules.buckets)

    def _bucket(self, now: int) -> int:
        return now // self._bucket_width
