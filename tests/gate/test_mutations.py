"""Would the comparison with the model notice a slip in the Lua? Every comparison is changed in turn."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from tests.gate.duel import RULES, Disagreement, Duel
from tests.gate.walk import Walk
from tests.gate.watched import Watched
from webhooks.errors import GateUnavailable
from webhooks.model import Limits

_FILES = ("admit", "common", "drained", "lane", "offer", "pace", "report", "show", "window")
_OTHER_WAY = {">=": ">", "<=": "<", ">": ">=", "<": "<=", "==": "~=", "~=": "==", "min": "max", "max": "min"}
_COMPARISON = re.compile(r"(?<= )(>=|<=|>|<|==|~=)(?= )|(?<=math\.)(?:min|max)")
_WALKS = 12
_MOVES = 300
_RATES = (None, 2.5, None, 0.4)

# Clearing the whole ring place by place comes to the same as starting a new one; and a bucket is empty at the very
# microsecond of a call, when no other is made.
_EQUIVALENT = {"math.abs(current - newest) > rules.buckets", "rest < rules.burst_us"}


@pytest.mark.long
@pytest.mark.parametrize("name", _FILES)
def test_every_changed_comparison_is_noticed(name: str, redis_url: str) -> None:
    """Each `<` that becomes `<=`, each `==` that becomes `~=` makes model and Lua differ, or the script fail."""
    unnoticed = [line for line, mutant in _mutants(name) if not _is_noticed(name, mutant, redis_url)]

    assert [line for line in unnoticed if not any(equivalent in line for equivalent in _EQUIVALENT)] == []


def test_the_lua_as_it_is_passes_the_same_walks(redis_url: str) -> None:
    """What notices the mutants agrees with the original."""
    assert not _is_noticed("admit", _text("admit"), redis_url)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("report", "release = 1,", "release = 2,"),
        ("report", "breaker.release + 1", "breaker.release + 2"),
        ("report", "breaker.release / 2", "breaker.release / 3"),
        ("report", "grant(breaker, pace, since, 2)", "grant(breaker, pace, since, 3)"),
        ("report", "2 * breaker.pause", "3 * breaker.pause"),
        ("report", "redis.call('DEL', WINDOW)", ""),
        ("report", "redis.call('DEL', SLOTS)", ""),
        ("report", "redis.call('ZREM', IN_FLIGHT, delivery)", ""),
        ("report", "epoch = next_epoch(breaker),", ""),
        ("admit", "ZPOPMIN", "ZPOPMAX"),
        ("common", "'%.0f'", "'%.14g'"),
        ("lane", "places - slots", "places"),
        ("lane", "math.min(rules.lane, width(pace, since), ", "math.min(rules.lane, "),
        ("lane", "width(pace, since), breaker.release or rules.lane", "width(pace, since)"),
        ("lane", ", tokens(pace))", ")"),
        ("lane", "pay(pace, number)", ""),
        ("admit", "pay(pace, 1)", ""),
        ("admit", "keep_pace(pace)", ""),
        ("admit", "and is_slow(pace, since)", ""),
        ("admit", "unpack(keep(1))", "unpack(keep(2))"),
        ("offer", "keep_pace(pace)", ""),
        ("report", "keep_pace(pace)", ""),
        ("report", "queue(pace, since)", "'quick'"),
        ("report", "took and effect", "effect"),
        ("pace", "3 * pace.took", "2 * pace.took"),
        ("pace", "earned(pace) + more", "pace.width + more"),
        ("pace", "and 0 or 1", "and 0 or 2"),
        ("pace", "and 0 or 1", "and 1 or 1"),
        ("pace", "rules.lane), now", "rules.lane), effect == 'failure' and pace.heard or now"),
        ("pace", "pace.width = rules.narrow", ""),
        ("pace", "math.max(since, pace.heard)", "since"),
        ("pace", "now + owed(pace) + number", "now + number"),
        ("window", "write_bucket(number, 0, 0)", ""),
    ],
)
def test_named_slips_are_noticed(name: str, right: str, wrong: str, redis_url: str) -> None:
    """So are a forgotten line, another number of the pacing, and digits lost from a stamp."""
    assert right in _text(name)

    assert _is_noticed(name, _text(name).replace(right, wrong), redis_url)


def _text(name: str) -> str:
    return files("webhooks.gate").joinpath("lua", f"{name}.lua").read_text("utf-8")


def _mutants(name: str) -> Iterator[tuple[str, str]]:
    """Yield each changed line and the whole text with it."""
    lines = _text(name).splitlines(keepends=True)
    for at, line in enumerate(lines):
        for found in _COMPARISON.finditer(line.partition("--")[0]):
            changed = line[: found.start()] + _OTHER_WAY[found[0]] + line[found.end() :]
            yield changed.strip(), "".join([*lines[:at], changed, *lines[at + 1 :]])


def _is_noticed(name: str, text: str, redis_url: str) -> bool:
    try:
        with contextlib.closing(Watched(redis_url, RULES, {name: text})) as gate:
            for seed in range(_WALKS):
                Walk(Duel(gate, Limits(rate=_RATES[seed % len(_RATES)])), seed).go(_MOVES)
    except (Disagreement, GateUnavailable):
        return True
    return False
