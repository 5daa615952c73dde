"""What the processes of a race do; they are forked and import this module."""

from __future__ import annotations

import threading
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, MayProbe
from webhooks.policy.breaker import BreakerRules


def race(me: int, redis_url: str, rules: BreakerRules, rounds: int, start: Barrier, won: Queue[list[int]]) -> None:
    """Ask for the probe of one merchant a round, at the same instant as the others; tell which rounds were won.

    Every other racer plays the sweep and asks for an offer.
    """
    gate = Gate(redis_url, rules)
    mine = []
    for number in range(rounds):
        start.wait()
        if me % 2:
            got = isinstance(gate.offer([f"merchant-{number}"])[f"merchant-{number}"], MayProbe)
        else:
            answer = gate.admit(f"merchant-{number}", f"delivery-{me}")
            got = isinstance(answer, Admitted) and answer.probe
        if got:
            mine.append(number)
    won.put(mine)


def probe_for_ever(redis_url: str, rules: BreakerRules, merchant_id: str, tokens: Queue[str | None]) -> None:
    """Become the probe, say so, and never come back."""
    answer = Gate(redis_url, rules).admit(merchant_id, "the killed one")
    tokens.put(answer.token if isinstance(answer, Admitted) and answer.probe else None)
    threading.Event().wait()
