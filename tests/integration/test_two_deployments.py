"""Two deployments on one Redis: with a namespace for one of them they share nothing."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGKILL

import psycopg2
import pytest
from celery import Celery
from redis import Redis

from tests.forks import Fork
from tests.system import System
from webhooks import parts
from webhooks.celery.app import DELIVERIES, Loader
from webhooks.celery.lookouts import Peeking
from webhooks.demo.stage import Stage
from webhooks.errors import SettingsError
from webhooks.gate.gate import Gate
from webhooks.model import State
from webhooks.policy.breaker import BreakerRules
from webhooks.process.once import once
from webhooks.settings import get_settings

EVENT = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
EVENTS = 20
NAME, PASSWORD = "staging", "pw"


@pytest.fixture
def broker_url(system: System) -> Iterator[str]:
    """The same Redis, for a user who may touch no key and no channel but those of the namespace."""
    may = {"keys": f"{NAME}:*", "channels": f"{NAME}:*", "commands": ["+@all"]}
    with Redis.from_url(system.servers.redis.url) as client:
        client.acl_setuser(NAME, enabled=True, passwords=[f"+{PASSWORD}"], **may)
        yield f"redis://{NAME}:{PASSWORD}@127.0.0.1:{system.servers.redis.port}/0"
        client.acl_deluser(NAME)


@pytest.fixture
def other_database_url(system: System) -> Iterator[str]:
    """A ledger of the second deployment's own."""
    connection = psycopg2.connect(system.servers.postgres.url())
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(f"CREATE DATABASE {NAME} TEMPLATE webhooks_template")
    yield system.servers.postgres.url(NAME)
    if parts.database.made:
        parts.database.made.dispose()
    cursor.execute(f"DROP DATABASE {NAME} WITH (FORCE)")
    connection.close()


def app_of_now() -> Celery:
    """Make an application over the settings that stand now."""
    made = Celery("fresh", loader=Loader, set_as_current=False)
    assert made.conf.task_acks_late
    return made


def test_two_deployments_share_nothing(system: System, broker_url: str, other_database_url: str) -> None:
    """Each delivers what is its own, counts it in its own breaker, and is asked by its own remote control."""
    live_merchant = system.merchant("acme")
    system.start()
    live, live_url = app_of_now(), get_settings().gate_url
    parts.database().dispose()
    once.forget_all()

    system.set(namespace=NAME, broker_url=broker_url, database_url=other_database_url)
    merchant = system.merchant("acme")
    other = app_of_now()
    settings = {name: value for name, value in system.environment.items() if name.startswith("WEBHOOKS_")}
    with Stage(system.folder / NAME, settings, ending=SIGKILL, launch=Fork) as stage:
        stage.worker("worker")
        stage.beat()
        for number in range(EVENTS):
            live.send_task("webhooks.deliver", args=[{**EVENT, "id": f"live-{number}"}])
            other.send_task("webhooks.deliver", args=[{**EVENT, "id": f"other-{number}"}])
        system.wait_for_count(State.DELIVERED, EVENTS)
        system.wait_until(lambda: len(live_merchant.requests) == EVENTS, "the first has delivered all of its own")
        assert [len(each.control.ping(timeout=1)) for each in (live, other)] == [1, 1]
        # In a process of its own: this one's application was made for other tests as well.
        system.wait_until(lambda: system.run("webhooks", "status").returncode == 0, "all is well with the second")

    assert {request.webhook_id for request in live_merchant.requests} == {f"live-{number}" for number in range(EVENTS)}
    assert {request.webhook_id for request in merchant.requests} == {f"other-{number}" for number in range(EVENTS)}
    gates = Gate(live_url, BreakerRules()), parts.gate()
    assert [gate.show("acme").successes for gate in gates] == [EVENTS, EVENTS]
    assert other.control.purge() == 0
    live.close()
    other.close()


@pytest.mark.usefixtures("system")
def test_the_queue_is_looked_at_in_its_namespace(system: System) -> None:
    """How deep it is and how old; the messages of another are not its own."""
    system.set(namespace=NAME)
    with app_of_now() as app:
        app.send_task("webhooks.deliver", args=[EVENT], headers={"queued_at": "2026-01-31T00:00:00+00:00"})
        found = Peeking(app).look(DELIVERIES)
        assert (found.depth, str(found.oldest)) == (1, "2026-01-31 00:00:00+00:00")
        assert set(system.redis().keys()) == {f"{NAME}:deliveries", *system.redis().keys(f"{NAME}:_kombu.*")}


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("name", ["a b", "a:b", "a*", "{a}", "ü", "a" * 65, "a\n"])
def test_a_namespace_that_keys_cannot_hold_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what it may be."""
    monkeypatch.setenv("WEBHOOKS_NAMESPACE", name)
    with pytest.raises(SettingsError, match="WEBHOOKS_NAMESPACE: a namespace has up to 64 letters"):
        get_settings()
