"""What producers and operators get wrong is one line that says what to do, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg2
import pytest
from celery import Celery
from sqlalchemy import create_engine, make_url

from tests.system import System
from webhooks import app, deliver, parts, record
from webhooks.celery.app import App, Loader
from webhooks.celery.tasks import Deliver
from webhooks.errors import NotPossible, SettingsError
from webhooks.operating import terminal

EVENT = {"id": "evt-1", "type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}


def test_deliver_is_not_called(system: System) -> None:
    """It would have run in the producer's process; the line says how an event is accepted."""
    for arguments in ((EVENT,), ()):
        with pytest.raises(NotPossible, match=r"deliver\.delay\(event\)"):
            deliver(*arguments)
    assert system.counted() == {}


def test_a_setting_that_comes_late_leaves_nothing_broken(
    system: System, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first use without settings is one line, and the next, with them, is like any other."""
    monkeypatch.delenv("WEBHOOKS_DATABASE_URL")
    late = App("late", loader=Loader, set_as_current=False)

    @late.task(base=Deliver, name="webhooks.deliver", shared=False)  # type: ignore[untyped-decorator]
    def task(event: object) -> None:
        """Stand in for deliver, which this process has bound long ago."""

    with pytest.raises(SettingsError, match="WEBHOOKS_DATABASE_URL is not set"):
        task.delay(EVENT)
    monkeypatch.setenv("WEBHOOKS_DATABASE_URL", database_url)
    assert task.delay(EVENT).id == "evt-1"
    assert (task.app, task.acks_late) == (late, True)
    with pytest.raises(NotPossible):
        task(EVENT)
    late.close()


class _OfAsyncio:
    """A connection as the drivers for asyncio have it."""

    def cursor(self) -> None:
        """Is no coroutine."""

    async def commit(self) -> None:
        """Is one."""


class _OfSqlalchemysAsyncio:
    """A connection or session of SQLAlchemy's asyncio, by what sets it apart."""

    async def run_sync(self, call: Callable[..., Any]) -> None:
        """Run a function over the plain connection."""


def test_record_says_what_it_takes(system: System, given: dict[str, Any]) -> None:
    """Whatever is given in the place of a connection; nothing is recorded, and nothing of a URL is told."""
    for what in given.values():
        with pytest.raises(NotPossible, match="record takes a SQLAlchemy Connection or Session") as refused:
            record(what, EVENT)
        assert len(str(refused.value).splitlines()) == 1
        assert given["url"] not in str(refused.value)
    assert system.counted() == {}


@pytest.fixture
def given(database_url: str) -> Iterator[dict[str, Any]]:
    """What is no connection, by what it is."""
    with ExitStack() as stack:
        plain = stack.enter_context(closing(psycopg2.connect(database_url)))
        other = create_engine("sqlite://")
        stack.callback(other.dispose)
        yield {
            "nothing": None,
            "url": database_url,
            "engine": create_engine(make_url(database_url).set(drivername="postgresql+psycopg2")),
            "cursor": plain.cursor(),
            "method": plain.cursor,
            "other database": stack.enter_context(other.connect()),
            "asyncio": _OfAsyncio(),
            "SQLAlchemy's asyncio": _OfSqlalchemysAsyncio(),
            "event": EVENT,
        }


ASKED: list[Callable[[Any], object]] = [
    lambda result: result.state,
    lambda result: result.status,
    lambda result: result.result,
    lambda result: result.info,
    lambda result: result.traceback,
    lambda result: result.children,
    lambda result: result.date_done,
    lambda result: result.get(timeout=1),
    lambda result: result.wait(),
    lambda result: result.ready(),
    lambda result: result.successful(),
    lambda result: result.failed(),
    lambda result: result.exists(),
    lambda result: result.forget(),
    lambda result: result.maybe_throw(),
    lambda result: result.then(print),
    lambda result: list(result.collect()),
    lambda result: result.graph,
]


@pytest.mark.usefixtures("system")
def test_celery_keeps_no_results() -> None:
    """Whoever asks what `delay` returned, or Celery, how the delivery went is told where that stands."""
    for result in (deliver.delay(EVENT), app.AsyncResult("evt-1")):
        for ask in ASKED:
            with pytest.raises(NotPossible, match=r"webhooks event show evt-1$"):
                ask(result)
        assert (result.id, str(result)) == ("evt-1", "evt-1")


def test_the_broker_is_ours_whatever_celery_finds(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that has a Celery application of its own has its broker in the environment."""
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.setenv(name, "redis://elsewhere:1/0")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "redis://elsewhere:1/0")
    with App("fresh", loader=Loader, set_as_current=False) as fresh:
        ways = (fresh.connection(), fresh.connection_for_read(), fresh.connection_for_write())
        assert {(way.hostname, way.port) for way in ways} == {("127.0.0.1", system.servers.redis.port)}
        with pytest.raises(NotPossible):
            assert fresh.AsyncResult("evt-1").state
    typed = system.run("celery", "-A", "webhooks", "-b", "redis://elsewhere:1/0", "report")
    assert (typed.returncode, typed.stderr) == (
        2,
        "webhooks: -b, --broker is not used: the broker is WEBHOOKS_BROKER_URL\n",
    )


def test_two_workers_reset_a_breaker_once(system: System) -> None:
    """Every worker hears remote control: one acts, the other says who did, and the audit has one line with a name."""
    system.merchant("acme")
    for name in ("first", "second"):
        system.stage.worker(name, "--concurrency", "1")
    told = replies(app, "reset_breaker", merchant_id="acme", who="alice")
    assert told == ["breaker of acme reset", "breaker of acme was just reset, by alice"]
    assert [(line.what, line.who) for line in parts.audit().latest(9).items] == [("breaker reset of acme", "alice")]
    system.sql("DELETE FROM audit")
    typed = system.run("celery", "-A", "webhooks", "control", "reset_breaker", "acme")
    assert typed.stdout.count("breaker of acme") == 2
    (line,) = parts.audit().latest(9).items
    assert line.who == terminal.operator().name
    # A mistake is one line as well, of each worker; nothing is done.
    for command in ("breaker", "reset_breaker"):
        assert replies(app, command) == [f"which merchant? Say: {command} MERCHANT"] * 2
        refused = {reply.partition(";")[0] for reply in replies(app, command, merchant_id="nosuch")}
        assert refused == {"no merchant nosuch"}
    assert len(parts.audit().latest(9).items) == 1
    assert not [each.log for each in system.stage.programs if "Traceback" in each.log.read_text()]


def replies(app: Celery, command: str, **arguments: str) -> list[str]:
    """Send a command to all workers, and return what they say."""
    found = app.control.broadcast(command, arguments, reply=True, timeout=5, limit=2)
    return sorted(text for reply in found for said in reply.values() for text in said.values())
