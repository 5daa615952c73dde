"""The connection by which messages are pushed: kept with its channel, looked at before, and nobody else's."""

from __future__ import annotations

import gc
import json
import os
import weakref
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.system import System
from webhooks.celery import broker, messages
from webhooks.celery.app import DELIVERIES, SLOW, app
from webhooks.errors import BrokerUnavailable
from webhooks.model import Message

NOW = timedelta()
MESSAGE = Message("evt-1", "acme", "payment.status_changed", 0, datetime(2026, 1, 31, 12, tzinfo=UTC))


def connected(redis: Any) -> int:
    """Return how many connections the broker has been asked for."""
    asked: int = redis.info("stats")["total_connections_received"]
    return asked


def test_all_go_by_one_connection(system: System) -> None:
    """Opened for the first, with nothing besides the push on it."""
    redis = system.redis()
    messages.publish(MESSAGE, NOW)
    redis.config_resetstat()
    before = connected(redis)
    for _ in range(20):
        messages.publish(MESSAGE, NOW)
    assert connected(redis) == before
    ran = {name: each["calls"] for name, each in redis.info("commandstats").items()}
    assert ran.keys() <= {"cmdstat_lpush", "cmdstat_info", "cmdstat_config|resetstat"}
    assert ran["cmdstat_lpush"] == 20


def test_one_that_the_broker_has_closed_is_not_used(system: System) -> None:
    """Such as by its own timeout for those that stand idle: the message goes by another, and no outage is told."""
    messages.publish(MESSAGE, NOW)
    system.redis().client_kill_filter(_type="normal", skipme=True)
    messages.publish(MESSAGE, NOW)
    assert system.redis().llen(DELIVERIES) == 2


def test_a_refusal_is_told_and_leaves_no_answer_behind(system: System) -> None:
    """Of two pushes the first is refused: the answer to the second is not taken for that to the next."""
    redis = system.redis()
    for refused in (DELIVERIES, SLOW):
        redis.delete(DELIVERIES, SLOW)
        redis.set(refused, "no list")
        with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
            messages.publish_all([MESSAGE, replace(MESSAGE, slow=True)], NOW)
    with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
        messages.publish(replace(MESSAGE, slow=True), NOW)
    redis.delete(DELIVERIES, SLOW)
    messages.publish_all([MESSAGE, replace(MESSAGE, slow=True)], NOW)
    assert (redis.llen(DELIVERIES), redis.llen(SLOW)) == (1, 1)


def test_whoever_is_interrupted_leaves_no_answer_behind(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed, with what may still come, and it and its channel are forgotten."""
    messages.publish(MESSAGE, NOW)
    with broker.channel_to(app) as channel:
        line = getattr(channel, broker._LINE)
        gone = weakref.ref(channel)
        del channel

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(line, "read_response", interrupted)
        with pytest.raises(KeyboardInterrupt):
            messages.publish(MESSAGE, NOW)
    assert line._sock is None
    del line
    messages.publish(MESSAGE, NOW)
    gc.collect()
    assert gone() is None
    assert system.redis().llen(DELIVERIES) == 3


def test_a_forked_process_has_another(system: System) -> None:
    """Two processes on one would read each other's answers. Its messages say that they come from it, too."""
    redis = system.redis()
    messages.publish(MESSAGE, NOW)
    before = connected(redis)
    child = os.fork()
    if child == 0:
        try:
            for _ in range(3):
                messages.publish(MESSAGE, NOW)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connected(redis) == before + 1
    messages.publish(MESSAGE, NOW)
    assert connected(redis) == before + 1  # the parent's is as it was
    origins = [json.loads(each)["headers"]["origin"] for each in redis.lrange(DELIVERIES, 0, -1)]
    assert {each.partition("@")[0]: origins.count(each) for each in origins} == {
        f"gen{os.getpid()}": 2,
        f"gen{child}": 3,
    }
