"""One command of a consumer fails, whichever and however: it consumes again within seconds, with all its places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest

from tests.faults.commands import CommandProxy, How
from tests.faults.test_broker import is_alive
from tests.system import System
from webhooks import app, deliver
from webhooks.demo.stage import wait_until
from webhooks.model import State
from webhooks.settings import get_settings

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}

# What a consumer says all the time: taking a message, booking it, ending it, and telling Flower.
_ALWAYS = ("BRPOP", "ZADD", "HSET", "ZREM", "HDEL", "EXEC", "PUBLISH")
# What it says when it has connected: putting back what is overdue under a lock, remote control, its queues.
_CONNECTING = ("SET", "ZRANGE", "EVALSHA", "PSUBSCRIBE", "SADD")
# What it says when it answers to remote control.
_ANSWERING = ("SMEMBERS", "LPUSH")
_ALL = _ALWAYS + _CONNECTING + _ANSWERING


@pytest.fixture
def proxy(system: System) -> Iterator[CommandProxy]:
    """A proxy between the processes and their broker; the gate, and what this process publishes, go past it."""
    assert app.conf.broker_url
    get_settings.forget()
    with CommandProxy(system.servers.redis.port) as proxy:
        system.set(broker_url=proxy.url, redis_url=system.servers.redis.url, broker_timeout=0.5, recover_after=2)
        yield proxy


@pytest.mark.parametrize(("places", "failing"), [(1, _ALL), (2, ("ZREM", "EXEC", "EVALSHA"))], ids=["one", "several"])
def test_no_failed_command_makes_a_worker_deaf(
    system: System, proxy: CommandProxy, places: int, failing: tuple[str, ...]
) -> None:
    """After each failure the same process delivers and answers to remote control within seconds."""
    merchant = system.merchant("acme")
    worker = system.start("-c", str(places))
    numbers = itertools.count(1)

    def accept() -> str:
        return str(deliver.delay({**PAID, "id": f"evt-{next(numbers)}"}).id)

    for command, how in itertools.product(failing, How):
        with proxy.failing(command, how) as fault:
            if command in _CONNECTING:
                system.redis().delete("unacked_mutex")  # which a lock whose release was lost leaves for minutes
                proxy.cut()
            accept()
            if command in _ANSWERING:
                _is_answered(0.1)
            wait_until(lambda: fault.has_happened, f"{fault.command} is {fault.how}", timeout=15)
        system.wait_for_state(State.DELIVERED, accept(), accept(), timeout=10)
        system.wait_until(_is_answered, f"it answers after {fault}", timeout=10)
    system.wait_for_count(State.DELIVERED, 3 * len(How) * len(failing))
    assert len(merchant.requests) == 3 * len(How) * len(failing)
    assert is_alive(worker)


def test_an_event_by_name_that_can_be_put_nowhere(system: System, proxy: CommandProxy) -> None:
    """Its message is the only copy while the ledger is away: it arrives although putting it back has failed."""
    merchant = system.merchant("acme")
    worker = system.stage.worker()
    no_copy = proxy.failing("LPUSH", How.CUT, times=math.inf)
    with system.ledger_away(), no_copy, proxy.failing("WATCH", How.CUT) as not_put_back:
        app.send_task("webhooks.deliver", args=[{**PAID, "id": "evt-1"}])
        wait_until(lambda: not_put_back.has_happened, "the message itself could not be put back either")
    system.wait_for_state(State.DELIVERED, "evt-1", timeout=15)
    assert len(merchant.requests) == 1
    assert is_alive(worker)


def _is_answered(timeout: float = 1) -> object:
    return app.control.inspect(timeout=timeout, limit=1).ping()
