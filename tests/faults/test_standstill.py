"""What stands still is seen by `webhooks status` and by health checks, in one line, and is well again by itself."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from signal import Signals
from socket import gethostname

import psycopg2
import pytest
from sqlalchemy import text

from tests import command
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.celery import broker
from webhooks.celery.app import DELIVERIES, SLOW, SWEEP
from webhooks.celery.scheduling import PersistentScheduler
from webhooks.demo.embedded import PostgresServer
from webhooks.errors import AnswerLost, BrokerUnavailable
from webhooks.health import judging, workers
from webhooks.health.asking import Fault, Questions, ask
from webhooks.health.workers import Worker
from webhooks.ledger import schema
from webhooks.ledger.audit import line
from webhooks.ledger.database import Database
from webhooks.model import Operator, State
from webhooks.sweep import Sighting

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
_A_SWEEP_LATER = "UPDATE leases SET finished_at = finished_at - interval '31 seconds' WHERE name = 'sweep'"


@pytest.fixture(autouse=True)
def _workers_answer_soon_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SOON_S", 0.3)
    monkeypatch.setattr(workers, "_LATER_S", 1.0)


def faults(*arguments: str) -> str:
    """Type `webhooks health` or another command, expect that it finds a fault, and return its lines of faults."""
    done = command.run(*(arguments or ("health",)))
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAULT")]
    assert (done.exit_code, bool(lines), done.stderr) == (1, True, ""), done.output
    return "\n".join(lines)


def is_well(*arguments: str) -> bool:
    """Whether `webhooks health` finds nothing wrong."""
    return command.run("health", *arguments).exit_code == 0


ALL = ("--system", "--beat", "--worker", "worker@%h")


def test_each_standstill_is_seen(system: System) -> None:
    """Nobody there, sessions that only read, a cancelled consumer, a frozen worker: each is one line, until it ends."""
    system.merchant("acme")
    assert "sweep: none has ever been done" in faults()
    assert "queue deliveries: no worker takes from it" in faults("status")
    assert "beat: none has sent a sweep" in faults("health", "--beat")

    worker = system.start("-c", "2")
    system.wait_until(lambda: is_well(*ALL), "all is well")
    with system.taking_no_writes():
        assert faults("status").count("read-only transaction") == 1
        assert "ledger: " in faults()
        assert is_well("--worker", "worker@%h")  # starting it anew would mend nothing
    system.wait_until(lambda: is_well(*ALL), "writes go on")

    app.control.cancel_consumer(DELIVERIES, reply=True)
    deliver.delay({**PAID, "id": "evt-1"})
    assert faults() == "FAULT  queue deliveries: no worker takes from it, and 1 messages wait"
    assert "control add_consumer deliveries" in faults("health", "--worker", "worker@%h")
    app.control.add_consumer(DELIVERIES, reply=True)
    system.wait_for_state(State.DELIVERED, "evt-1")

    worker.send(Signals.SIGSTOP)
    assert "it does not answer" in faults("health", "--worker", "worker@%h")
    worker.send(Signals.SIGCONT)
    system.wait_until(lambda: is_well(*ALL), "it goes on")


def test_beat_that_is_gone_is_seen(system: System) -> None:
    """With all well `status` tells what each part does; with held deliveries and no beat it names the sweep."""
    system.merchant("acme")
    system.stage.worker("worker")
    beat = system.stage.beat()
    system.wait_until(lambda: is_well(*ALL), "all is well")
    told = command.done("status")
    assert (told["faults"], told["ledger_takes_writes"], told["longest_overdue"]) == ([], True, 0)
    assert told["sweep"]["ago"] < 5
    assert told["queues"].keys() == {"deliveries", "slow", "sweep"}
    ((name, said),) = told["workers"].items()
    assert (said["queues"], said["cancelled"], said["room"]) == (["deliveries", "slow", "sweep"], [], True)
    assert said["quiet"]["sweep"] < 5
    assert f"{name} takes from deliveries, slow, sweep" in command.run("status").stdout

    parts.endpoints().pause("acme", paused=True)
    deliver.delay({**PAID, "id": "evt-1"})
    system.wait_for_state(State.HELD, "evt-1")
    beat.stop()
    redis = system.redis()
    (sign,) = redis.keys("sweep.beat.*")
    assert 0 < redis.ttl(sign) <= 30
    redis.delete(sign)
    system.wait_until(lambda: not redis.llen(SWEEP) and not redis.hlen("unacked"), "what was sent has been done")
    parts.endpoints().pause("acme", paused=False)
    system.sql(_A_SWEEP_LATER)
    assert "sweep: none has been done to the end for 3" in faults("status")
    assert json.loads(command.run("status", "--json").stdout)["held_for"] == {"next sweep": 1}
    assert "beat: none has sent a sweep" in faults("health", "--beat")
    system.stage.beat()
    system.wait_for_state(State.DELIVERED, "evt-1")
    system.wait_until(lambda: is_well(*ALL), "all is well again")


def test_a_worker_that_takes_nothing_is_deaf(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers and says that it takes from its queue; but its only place is not free, and messages wait."""
    monkeypatch.setattr(judging, "QUIET", timedelta(seconds=0.5))
    system.stage.worker("sweep", "-Q", "sweep", "-c", "1")
    app.control.rate_limit("webhooks.sweep", "1/h", reply=True)
    for _ in range(4):
        app.send_task("webhooks.sweep")
    redis = system.redis()
    system.wait_until(lambda: redis.hlen("unacked") == 1 and redis.llen(SWEEP) == 2, "its place is taken")
    system.wait_until(lambda: not is_well("--worker", "sweep@%h"), "it is seen")
    assert "it has taken nothing from the queue sweep for" in faults("health", "--worker", "sweep@%h")
    assert "and 2 messages wait" in faults()


@pytest.mark.parametrize(
    ("quiet_s", "before", "after", "deaf"),
    [
        (61, 7, 7, True),
        (59, 7, 7, False),  # it took something within the minute
        (61, 7, 8, False),  # somebody else takes
        (61, None, 7, False),  # it came just now
        (61, 7, None, False),
    ],
)
@pytest.mark.parametrize("queue", [DELIVERIES, SLOW, SWEEP])
def test_who_is_deaf(queue: str, quiet_s: float, before: int | None, after: int | None, deaf: bool) -> None:
    """Only who has taken nothing for a minute while the same message was the next."""
    worker = Worker([queue], [], {queue: timedelta(seconds=quiet_s)}, room=True)
    answers = {
        "workers": {"w": worker},
        **{f"{when} {name}": Sighting(0, None) for when in ("queue", "then") for name in judging.QUEUES},
        f"queue {queue}": Sighting(1, None, next=before),
        f"then {queue}": Sighting(1, None, next=after),
    }
    assert [fault.text.partition(" for ")[0] for fault in judging.judge_worker(answers, "w")] == [
        f"it has taken nothing from the queue {queue}"
    ] * deaf


@pytest.mark.parametrize(
    ("depth", "takes", "missing"),
    [
        (0, [DELIVERIES, SLOW, SWEEP], []),
        (0, [DELIVERIES, SWEEP], []),  # nobody is slow
        (1, [DELIVERIES, SWEEP], [SLOW]),
        (1, [DELIVERIES, SLOW, SWEEP], []),
        (0, [SLOW], [DELIVERIES, SWEEP]),  # which may get a message at any time
    ],
)
def test_from_which_queues_somebody_must_take(depth: int, takes: list[str], missing: list[str]) -> None:
    """From that of the slow only while something waits there."""
    answers = {
        "workers": {"w": Worker(takes, [], {}, room=True)},
        **{f"{when} {name}": Sighting(0, None) for when in ("queue", "then") for name in judging.QUEUES},
        f"then {SLOW}": Sighting(depth, None),
    }
    faults = [(fault.part, fault.text.partition(",")[0]) for fault in judging.judge_system(answers)]
    assert faults == [(f"queue {name}", "no worker takes from it") for name in missing]


def test_what_waits_for_a_slow_endpoint_is_seen(system: System) -> None:
    """Its queue has a depth and an age of its own, and nobody who takes from it is a fault while something waits."""
    deliver.delay({**PAID, "id": "evt-1"})
    assert "queue slow" not in faults()
    system.redis().lmove(DELIVERIES, SLOW, "RIGHT", "LEFT")
    assert "queue slow: no worker takes from it, and 1 messages wait" in faults()
    told = json.loads(command.run("status", "--json").stdout)["queues"]
    assert {name: each["depth"] for name, each in told.items()} == {DELIVERIES: 0, SLOW: 1, SWEEP: 0}
    assert told[SLOW]["oldest_waits"] >= 0
    assert "slow: 1 wait, the oldest for " in command.run("status").stdout


def test_a_part_that_is_silent_keeps_no_answer_back() -> None:
    """The others' answers are there in time, and it is named; what follows on a part that is away is not asked."""
    for_ever = threading.Event()

    def away() -> None:
        raise BrokerUnavailable("the broker cannot be reached")

    asked: dict[str, Questions] = {
        "ledger, writing": {"writes": for_ever.wait},
        "gate": {"gate": lambda: "answers"},
        "broker": {"queue": away, "workers": for_ever.wait},
        "beat": {"beat": lambda: 1 / 0},
    }
    answers = ask(asked, within=timedelta(seconds=0.3))
    assert answers["gate"] == "answers"
    assert answers["writes"] == Fault("ledger", "it has not answered within 0.3 s")
    assert answers["queue"] == answers["workers"] == Fault("broker", "the broker cannot be reached")
    assert answers["beat"] == Fault("beat", "ZeroDivisionError: division by zero")
    assert len(list(judging.unanswered(answers))) == 3
    for_ever.set()


def test_what_is_overdue_is_named(system: System) -> None:
    """A delivery that should have been looked at more than a minute ago is a fault, with its id."""
    deliver.delay({**PAID, "id": "evt-1"})
    assert "evt-1" not in faults("status")
    system.sql("UPDATE deliveries SET due_at = now() - interval '95 seconds'")
    assert "deliveries: evt-1 is overdue by 95 s" in faults("status")
    told = json.loads(command.run("status", "--json").stdout)
    assert told["most_overdue"] == "evt-1"
    assert told["longest_overdue"] >= 95


def test_a_commit_that_hangs_is_seen(system: System, tmp_path: Path) -> None:
    """A standby that is missing holds every commit: `status` says so, comes back, and leaves nothing hanging behind."""
    server = PostgresServer(tmp_path / "pg").start()
    try:
        system.set(database_url=server.url())
        database = Database(server.url())
        schema.upgrade(database)
        _administer(server, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        assert "it confirmed nothing in time (is the standby of synchronous_standby_names there?)" in faults("status")
        with pytest.raises(AnswerLost, match="confirmed nothing"), parts.database().within(timedelta(seconds=1)):
            parts.database().rows(line(Operator("somebody"), "an act that hangs"))
        with pytest.raises(AnswerLost, match="it is not known whether it was done"):
            _an_act_that_hangs()
        waiting = "SELECT count(*) AS number FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        assert parts.database().rows(text(waiting))[0].number == 0
        _administer(server, "ALTER SYSTEM RESET synchronous_standby_names")
        assert command.run("status", "--json").stdout.count("confirmed nothing") == 0
        database.dispose()
        parts.database().dispose()
    finally:
        server.stop()


def _an_act_that_hangs() -> None:
    with (
        parts.database().within(timedelta(seconds=1)),
        parts.act(Operator("somebody"), "it was done", "webhooks audit") as act,
    ):
        act.note("an act that hangs")


def _administer(server: PostgresServer, statement: str) -> None:
    with closing(psycopg2.connect(server.url())) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(statement)
        cursor.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("off_s", [600, -600])
def test_a_worker_whose_clock_is_off_sweeps(system: System, off_s: int) -> None:
    """Ten minutes ahead or behind, and with 500 old messages in the queue: what is held goes within seconds."""
    system.merchant("acme")
    for _ in range(500):
        app.send_task("webhooks.sweep")
    parts.endpoints().pause("acme", paused=True)
    system.stage.beat()
    system.stage.run(
        "worker", "-m", "tests.faults.off_clock", str(off_s), "celery", "-A", "webhooks", "worker", "-l", "INFO",
        "-n", "worker@%h", ready=" ready.",
    )  # fmt: skip
    deliver.delay({**PAID, "id": "evt-1"})
    system.wait_for_state(State.HELD, "evt-1")
    redis = system.redis()
    system.wait_until(lambda: redis.llen(SWEEP) <= 1, "the old ones are worked off")
    parts.endpoints().pause("acme", paused=False)
    system.wait_for_state(State.DELIVERED, "evt-1", timeout=10)
    system.wait_until(lambda: is_well("--system", "--worker", "worker@%h", "--beat"), "all is well")


def test_beat_sends_no_sweep_where_one_waits(system: System) -> None:
    """While nobody takes them, ten ticks leave one sweep and one prune, and the sign that beat lives."""
    scheduler = PersistentScheduler(app=app)
    for _ in range(10):
        assert scheduler.tick() <= 1
        scheduler._next_s = dict.fromkeys(scheduler._next_s, 0.0)
    messages = [json.loads(message)["headers"] for message in system.redis().lrange(SWEEP, 0, -1)]
    assert sorted(header["task"] for header in messages) == ["webhooks.prune", "webhooks.sweep"]
    assert {header["expires"] for header in messages} == {None}
    assert broker.has_beat(app, gethostname())
    scheduler.close()


def test_beat_goes_by_no_wall_clock(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set back by an hour, its host's clock holds up nothing."""
    scheduler = PersistentScheduler(app=app)
    scheduler.tick()
    monkeypatch.setattr(app, "now", lambda: datetime.now(app.timezone) - timedelta(hours=1))
    redis = system.redis()
    system.wait_until(lambda: scheduler.tick() <= 1 and redis.llen(SWEEP), "a sweep is sent", timeout=5)
    scheduler.close()


def test_beat_says_once_that_the_broker_is_away(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """One line, no traceback, and another when it is back."""
    scheduler = PersistentScheduler(app=app)
    scheduler.tick()
    redis = system.redis()
    redis.config_set("maxmemory", 1)
    for _ in range(3):
        scheduler._next_s = dict.fromkeys(scheduler._next_s, 0.0)
        scheduler.tick()
    redis.config_set("maxmemory", 0)
    scheduler._next_s = dict.fromkeys(scheduler._next_s, 0.0)
    scheduler.tick()
    assert caplog.text.count("broker.away") == caplog.text.count("broker.back") == 1
    assert "Traceback" not in caplog.text
    scheduler.close()


def test_nobody_is_waited_for_once_all_workers_have_answered(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker knows how many hear a question; that of a frozen worker is waited for, as long as was said."""
    monkeypatch.setattr(workers, "_SOON_S", 3600.0)
    for name in ("first", "second"):
        system.stage.worker(name)
    seen: list[list[str]] = []
    threading.Thread(target=lambda: seen.append(list(workers.look_at_workers(()))), daemon=True).start()
    system.wait_until(lambda: seen, "the workers have answered")
    assert [name.partition("@")[0] for name in seen[0]] == ["first", "second"]
    monkeypatch.setattr(workers, "_SOON_S", 0.3)
    system.stage.programs[-1].send(Signals.SIGSTOP)
    assert [name.partition("@")[0] for name in workers.look_at_workers(())] == ["first"]
    system.stage.programs[-1].stop(Signals.SIGKILL)
