"""`make bench`: what our promises cost, as ratios of figures taken in one run on one machine.

Seconds differ from machine to machine; how much slower than a bare Celery task we are, and whether a neighbour or a
backlog is felt, differs less.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from cryptography.fernet import Fernet
from sqlalchemy import text

from tests.merchant import Merchant, Reply, Request, Stall, TestCA
from webhooks import app, deliver, parts
from webhooks.demo.embedded import Servers
from webhooks.demo.stage import Stage, wait_until
from webhooks.ledger import schema
from webhooks.model import Changes

EVENT = {"type": "payment.status_changed", "status": "paid", "payment_id": "pay_1", "external_id": "order-1"}
DELIVERIES = 1500
HELD = 100_000


class Bench:
    """Servers, merchants and a place for processes."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="webhooks-bench-")))
        self.servers = stack.enter_context(Servers())
        self.ca = TestCA(self.folder)
        self.stack = stack
        self.environment = {
            "WEBHOOKS_DATABASE_URL": self.servers.postgres.url(),
            "WEBHOOKS_BROKER_URL": self.servers.redis.url,
            "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode(),
            "WEBHOOKS_CA_BUNDLE": str(self.ca.pem),
            "WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
        }
        os.environ |= self.environment | {"BARE_BROKER_URL": self.servers.redis.url}
        schema.upgrade(parts.database())

    def merchant(self, merchant_id: str) -> Merchant:
        """Start and register a merchant that answers 200 at once."""
        merchant = self.stack.enter_context(Merchant(self.ca))
        parts.endpoints().set(merchant_id, Changes(url=merchant.url(), secret="a secret"))
        return merchant

    def stage(self, **settings: str) -> Stage:
        """Make a place for processes."""
        return Stage(self.folder, self.environment | {"BARE_BROKER_URL": self.servers.redis.url} | settings)


def rate(requests: list[Request]) -> float:
    """Return POSTs a second between the first and the last."""
    times = sorted(request.at.timestamp() for request in requests)
    return (len(times) - 1) / (times[-1] - times[0])


def accepting(_bench: Bench) -> tuple[float, float]:
    """Accept: `deliver.delay` against a bare task's `delay`, calls a second."""
    ours = per_second(lambda: deliver.delay({**EVENT, "merchant_id": "acme"}))
    return ours, bare_accepting()


def bulk(_bench: Bench) -> tuple[float, float]:
    """Accept many: `deliver.many` of 1,000 against a bare task's `delay`, events a second."""
    events = [{**EVENT, "merchant_id": "acme"}] * 1000
    return 1000 * per_second(lambda: deliver.many(events), 5), bare_accepting()


def bare_accepting() -> float:
    """Return the rate at which a bare task is sent, and leave everything empty."""
    from benchmarks.bare import post  # noqa: PLC0415 - it reads the environment

    bare = per_second(lambda: post.delay("https://localhost/", json.dumps(EVENT)))
    with app.connection_for_write() as connection:
        connection.default_channel.queue_purge("bare")
        connection.default_channel.queue_purge("deliveries")
    parts.database().rows(text("TRUNCATE deliveries CASCADE"))
    return bare


def per_second(call: Callable[[], object], count: int = 500) -> float:
    """Return how often a second something can be called."""
    call()
    started = time.perf_counter()
    for _ in range(count):
        call()
    return count / (time.perf_counter() - started)


def delivering(bench: Bench) -> tuple[float, float]:
    """Deliver: one of our worker processes against one with the bare task, POSTs a second out of a full queue."""
    from benchmarks.bare import post  # noqa: PLC0415

    merchant = bench.merchant("acme")
    for _ in range(DELIVERIES):
        deliver.delay({**EVENT, "merchant_id": "acme"})
    with bench.stage() as stage:
        stage.worker("ours", "-Q", "deliveries", "--without-mingle")
        merchant.wait_for(DELIVERIES, timeout=120)
    ours = rate(merchant.requests)
    merchant.forget()
    for _ in range(DELIVERIES):
        post.delay(merchant.url(), json.dumps(EVENT))
    with bench.stage() as stage:
        command = ["-m", "celery", "-A", "benchmarks.bare", "worker", "-l", "INFO", "--without-mingle"]
        stage.run("bare", *command, ready=" ready.")
        merchant.wait_for(DELIVERIES, timeout=120)
    return ours, rate(merchant.requests)


def crowding(bench: Bench) -> tuple[float, float]:
    """Crowd: two workers on one merchant's backlog, with the lane of 10 against no lane, POSTs a second."""
    merchant = bench.merchant("crowd")
    return tuple(backlog_rate(bench, merchant, lane) for lane in (10, 1000))  # type: ignore[return-value]


def backlog_rate(bench: Bench, merchant: Merchant, lane: int) -> float:
    """Return the rate at which two workers work off a full queue for one merchant."""
    merchant.forget()
    for _ in range(DELIVERIES):
        deliver.delay({**EVENT, "merchant_id": "crowd"})
    with bench.stage(WEBHOOKS_LANE=str(lane)) as stage:
        stage.beat()
        stage.worker(f"one-{lane}", "--without-mingle")
        stage.worker(f"two-{lane}", "--without-mingle")
        merchant.wait_for(DELIVERIES, timeout=120)
    return rate(merchant.requests)


def sweeping(bench: Bench) -> tuple[float, float]:
    """Sweep: an idle tick with 100,000 held deliveries of a dead merchant against one with none, ticks a second."""
    from tests.integration.test_breaker import pause  # noqa: PLC0415

    parts.database().rows(text("TRUNCATE deliveries CASCADE"))
    idle = per_second(parts.sweeper().tick, 200)
    bench.merchant("dead")
    parts.database().rows(
        text(
            "INSERT INTO deliveries (id, merchant_id, type, money, body, body_sha256, state, held_for, due_at,"
            " accepted_at, expires_at) SELECT 'held-' || n, 'dead', 'refund.completed', true, '{}', sha256('{}'),"
            " 'held', 'breaker', now(), now(), now() + interval '30 days' FROM generate_series(1, :count) AS n"
        ),
        {"count": HELD},
    )
    pause(parts.gate(), "dead")
    return per_second(parts.sweeper().tick, 200), idle


def neighbouring(bench: Bench) -> tuple[float, float]:
    """Neighbour: a healthy merchant's latency while another takes 2 s for each of 300, against alone; median, 1/s."""
    parts.database().rows(text("TRUNCATE deliveries CASCADE"))
    healthy, slow = bench.merchant("healthy"), bench.merchant("slow")
    slow.answer_with(lambda _request: Reply.raw(Stall(2), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
    with bench.stage() as stage:
        stage.worker("neighbours", "--without-mingle")
        stage.beat()
        alone = latency(healthy)
        for _ in range(300):
            deliver.delay({**EVENT, "merchant_id": "slow"})
        wait_until(lambda: len(slow.requests) >= 10, "the slow one is at work")
        beside = latency(healthy)
    return 1 / beside, 1 / alone


def latency(merchant: Merchant) -> float:
    """Return the median time from `deliver.delay` to the merchant, in seconds."""
    merchant.forget()
    measured = []
    for number in range(1, 31):
        started = time.time()
        deliver.delay({**EVENT, "merchant_id": "healthy"})
        merchant.wait_for(number)
        measured.append(merchant.requests[-1].at.timestamp() - started)
    return statistics.median(measured)


def main() -> None:
    """Run every benchmark and print its ratio."""
    print(f"{'':<12}{'ours, 1/s':>12}{'other, 1/s':>12}{'ratio':>8}")
    with ExitStack() as stack:
        bench = Bench(stack)
        for measure in (accepting, bulk, delivering, crowding, sweeping, neighbouring):
            ours, other = measure(bench)
            print(f"{measure.__name__:<12}{ours:>12.1f}{other:>12.1f}{ours / other:>8.2f}   {measure.__doc__}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
