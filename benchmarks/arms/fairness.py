"""What others' trouble costs the healthy: each case against the healthy phase of the same processes, at one rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks.arms.steady import phase
from benchmarks.bench import Bench
from benchmarks.figures import Row, compared, rate
from benchmarks.load import Load, event_for
from benchmarks.sick import ENDLESS, HANG, SLOW, TWO
from webhooks import deliver, parts
from webhooks.gate.values import Admitted
from webhooks.policy.breaker import Effect

RATE = 55.0  # events a second: about half of what two cores did when the promise was first measured
BEFORE, AFTER = 6.0, 18.0  # seconds: all healthy; then until what hangs has been tried again and again
BACKLOG = 20_000
HELD = 50_000


def fairness(bench: Bench) -> list[Row]:
    """Every case once, each on processes of its own."""
    return [case(bench) for case in CASES.values()]


def _falling(bench: Bench, *, name: str, healthy: int, sick: Sequence[tuple[str, int]]) -> Row:
    """Let some of the merchants fall sick at one moment of a steady load, and count from that moment."""
    count = sum(each for _, each in sick)

    def fall() -> None:
        first = 0
        for how, each in sick:
            bench.sick_ones.fall(how, each, first)
            first += each

    bench.reset()
    with bench.running():
        return _judged(bench, name, bench.healthy[:healthy] + bench.sick[:count], fall)


def _judged(bench: Bench, name: str, merchants: Sequence[str], trouble: Callable[[], object]) -> Row:
    seen = phase(bench, merchants, RATE, BEFORE + AFTER, (BEFORE, trouble))
    moment = seen.settled + BEFORE
    before, after = seen.between(seen.settled, moment), seen.between(moment, seen.end)
    return compared("fairness", name, after, before, "all healthy", missing=seen.missing)


def _slow_backlog(bench: Bench) -> Row:
    """Queue 20,000 for one merchant that takes 2 s for each, and only then go on with the steady load."""
    merchants = bench.healthy[:99] + bench.sick[:1]
    bench.reset()
    with bench.running():
        before = phase(bench, merchants, RATE, BEFORE)
        bench.sick_ones.fall(TWO, 1)
        deliver.many([event_for(bench.sick[0]) for _ in range(BACKLOG)])
        after = phase(bench, merchants, RATE, AFTER)
    return compared(
        "fairness",
        "20,000 of one that takes 2 s",
        after.between(after.start, after.end),
        before.between(before.settled, before.end),
        "all healthy",
        missing=after.missing,
    )


def _bulk(bench: Bench) -> Row:
    """Let a second producer hand over 20,000 for the same merchants in one call."""
    merchants = bench.healthy[:100]
    bench.reset()
    with bench.running(), Load(bench.of_others()) as other:
        command = {"do": "bulk", "merchants": merchants, "count": BACKLOG}
        return _judged(bench, "a bulk of 20,000 beside", merchants, partial(other.begin, command))


CASES: Mapping[str, Callable[[Bench], Row]] = {
    "hang": partial(_falling, name="10 of 100 hang", healthy=90, sick=[(HANG, 10)]),
    "both": partial(_falling, name="10 hang, 10 take 9 s", healthy=80, sick=[(HANG, 10), (SLOW, 10)]),
    "thirty": partial(_falling, name="30 of 100 hang", healthy=70, sick=[(HANG, 30)]),
    "many": partial(_falling, name="300 of 1,000 hang", healthy=700, sick=[(HANG, 300)]),
    "endless": partial(_falling, name="10 never end the body", healthy=90, sick=[(ENDLESS, 10)]),
    "backlog": _slow_backlog,
    "bulk": _bulk,
}


def recovery(bench: Bench) -> list[Row]:
    """Release 50,000 held of one endpoint beside a steady load: the others' latency, and the pace of the 50,000."""
    back, others = bench.healthy[-1], bench.healthy[:99]
    bench.reset()
    bench.hold([back], 1, HELD)
    pause(back)
    with bench.running():
        seen = phase(bench, others, RATE, BEFORE + AFTER, (BEFORE, partial(parts.gate().reset, back)))
        moment = seen.settled + BEFORE
        beside = _released(seen.arrived, moment + 1, seen.end)
        alone = _alone(bench)
    before, after = seen.between(seen.settled, moment), seen.between(moment, seen.end)
    return [
        compared("recovery", "the others", after, before, "before the release", missing=seen.missing),
        Row("recovery", "the 50,000", {"1/s": beside, "alone 1/s": alone}, beside / alone if alone else None, "alone"),
    ]


def _released(arrived: Mapping[str, float], since: float, until: float) -> float:
    return rate([at for each, at in arrived.items() if each.startswith("held-") and since <= at < until])


def _alone(bench: Bench) -> float:
    """Return the pace of what is released while nothing else is on its way."""
    mark = bench.nginx.mark()
    arrived = bench.arrivals(mark, HELD, 8)
    return rate([at for each, at in arrived.items() if each.startswith("held-")])


def pause(endpoint_id: str) -> None:
    """Open an endpoint's breaker: in this process one failure does it."""
    admitted = parts.gate().admit(endpoint_id, "d")
    if isinstance(admitted, Admitted):
        parts.gate().report(endpoint_id, admitted, Effect.FAILURE)
