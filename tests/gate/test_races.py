"""Real processes against one Redis and its own clock: one probe, whoever asks, and another when its owner dies."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from tests.breaker_model import US
from tests.forks import CONTEXT
from tests.gate.racers import probe_for_ever, race
from tests.gate.script import MERCHANT, QUICK, admitted, attempts, widen
from webhooks.demo.stage import wait_until
from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, Busy, Held, Slow
from webhooks.model import Limits
from webhooks.policy.breaker import BreakerRules, Effect

Answer = Admitted | Held | Busy | Slow

_ROUNDS = 1_000
_RACERS = 8
_AT_ONCE = BreakerRules(min_attempts=1, pause=timedelta(microseconds=1))


def test_of_eight_processes_exactly_one_gets_the_probe(redis_url: str) -> None:
    """A thousand times, four asking before an attempt and four for the sweep, at the same instant."""
    gate = Gate(redis_url, _AT_ONCE)
    for number in range(_ROUNDS):
        attempts(gate, Effect.FAILURE, merchant=f"merchant-{number}")
    start, won = CONTEXT.Barrier(_RACERS), CONTEXT.Queue()
    what = (redis_url, _AT_ONCE, _ROUNDS, start, won)
    racers = [CONTEXT.Process(target=race, args=(me, *what)) for me in range(_RACERS)]
    for racer in racers:
        racer.start()
    wins = [won.get(timeout=180) for _ in racers]
    for racer in racers:
        racer.join()

    assert Counter(number for mine in wins for number in mine) == dict.fromkeys(range(_ROUNDS), 1)
    assert sum(map(bool, wins)) > 1


def test_a_killed_probe_is_followed_by_another_when_its_lease_is_over(redis_url: str) -> None:
    """Its owner gets SIGKILL: the next probe comes after the lease, not before, and its success closes the breaker."""
    rules = BreakerRules(min_attempts=1, pause=timedelta(microseconds=1), lease=timedelta(milliseconds=300))
    gate, tokens = Gate(redis_url, rules), CONTEXT.Queue()
    attempts(gate, Effect.FAILURE)
    owner = CONTEXT.Process(target=probe_for_ever, args=(redis_url, rules, MERCHANT, tokens))
    owner.start()
    first = tokens.get(timeout=20)
    owner.kill()
    owner.join()
    answers: list[Admitted] = []

    def asks_again() -> bool:
        answer = gate.admit(MERCHANT, "the next one")
        answers.extend([answer] if isinstance(answer, Admitted) else [])
        return bool(answers)

    wait_until(asks_again, "the next probe")

    (second,) = answers
    assert second.probe
    assert second.token
    assert _ends(second.token) - rules.lease // US >= _ends(first)
    assert gate.report(MERCHANT, second, Effect.SUCCESS).closed


def test_one_delivery_is_admitted_once_however_many_ask(redis_url: str) -> None:
    """Twenty threads with the same message: one attempt, nineteen are told that it is busy (I3)."""
    gate = Gate(redis_url, BreakerRules())

    assert Counter(map(type, _ask_at_once(lambda _: gate.admit(MERCHANT, "the same")))) == {Admitted: 1, Busy: 19}


def test_of_many_who_ask_at_once_no_more_go_over_than_a_slow_endpoint_has_places(redis_url: str) -> None:
    """Twenty threads after a timeout: as many slots as it is wide, and the others are held."""
    gate = Gate(redis_url, BreakerRules())
    attempts(gate, Effect.FAILURE, took=timedelta(seconds=10))
    narrow = BreakerRules().narrow

    answers = _ask_at_once(lambda number: gate.admit(MERCHANT, f"delivery-{number}"))

    assert Counter(map(type, answers)) == {Slow: narrow, Held: 20 - narrow}
    assert gate.show(MERCHANT).slots == len({answer.slot for answer in answers if isinstance(answer, Slow)}) == narrow


def test_of_many_who_ask_at_once_no_more_go_than_there_are_tokens(redis_url: str) -> None:
    """Twenty threads, and one attempt in a hundred seconds."""
    gate = Gate(redis_url, BreakerRules(lane=20, narrow=20))

    answers = _ask_at_once(lambda number: gate.admit(MERCHANT, f"delivery-{number}", None, Limits(rate=0.01)))

    assert Counter(map(type, answers)) == {Admitted: 1, Held: 19}


def test_the_lane_is_never_more_than_full(redis_url: str) -> None:
    """Forty threads, four rounds each: never more than twenty in flight, and no lease is left over."""
    gate, most = Gate(redis_url, BreakerRules()), []
    widen(gate)

    def come_and_go() -> None:
        for number in range(4):
            answer = gate.admit(MERCHANT, f"{threading.get_ident()}-{number}")
            if isinstance(answer, Admitted):
                most.append(gate.show(MERCHANT).in_flight)
                gate.report(MERCHANT, answer, Effect.SUCCESS, took=QUICK)

    threads = [threading.Thread(target=come_and_go) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert max(most) <= BreakerRules().lane
    assert gate.show(MERCHANT).in_flight == 0


def test_an_admission_says_when_its_lease_ends(redis_url: str) -> None:
    """By the server's clock, and to the microsecond."""
    gate = Gate(redis_url, BreakerRules())
    first, second = admitted(gate), admitted(gate)

    assert first.token
    assert second.token
    assert _ends(first.token) < _ends(second.token)


def _ask_at_once(ask: Callable[[int], Answer], times: int = 20) -> list[Answer]:
    """Ask from so many threads in the same instant."""
    start, answers = threading.Barrier(times), list[Answer]()

    def one(number: int) -> None:
        start.wait()
        answers.append(ask(number))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _ends(token: str) -> int:
    return int(token.split(":")[1])
