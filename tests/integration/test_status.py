"""`webhooks status`: all of it on one screen, again and again where that is wanted, and with any part away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from redis import Redis

from tests.command import run
from tests.courier import accept, attempt, send
from tests.faults.frozen import frozen
from tests.system import System
from webhooks.cli import status
from webhooks.demo.embedded import RedisServer
from webhooks.health import judging, workers

EVENT = {"type": "kyc.status_changed", "status": "approved"}
MONEY = {"type": "refund.completed"}
NO_WORKER = "FAULT  queue deliveries: no worker takes from it, and "


@pytest.fixture(autouse=True)
def _no_worker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none in these tests: who might answer need not be given seconds."""
    monkeypatch.setattr(workers, "_SOON_S", 0.05)
    monkeypatch.setattr(workers, "_LATER_S", 0.05)


def screen(*options: str) -> dict[str, str]:
    """Type `webhooks status`, and return its lines by what they begin with."""
    told = run("status", *options)
    assert (told.exit_code, told.stderr) == (1, "")
    return {name.strip(): text.strip() for name, _, text in (line.partition("  ") for line in told.stdout.splitlines())}


def test_one_screen_says_how_things_stand(system: System) -> None:
    """What goes through, what is held for what and by whom, what failed and needs a person, what is overdue."""
    system.merchant("acme").answers(404)
    send({**EVENT, "id": "evt-1", "merchant_id": "acme"})
    for number in range(2):
        attempt(accept({**MONEY, "id": f"lost-{number}", "merchant_id": "mistyped"}))
    accept({**MONEY, "id": "evt-2", "merchant_id": "acme"})
    accept({**EVENT, "id": "evt-3", "merchant_id": "acme"})
    system.sql(
        "UPDATE deliveries SET state = 'failed', reason = 'expired', finished_at = now(), sweep_at = NULL"
        " WHERE id = 'evt-2'"
    )
    system.sql("UPDATE deliveries SET due_at = due_at - interval '3 minutes' WHERE id = 'evt-3'")
    lines = screen()
    assert lines["last minute"].startswith("5 accepted, 0 delivered, 2 failed")
    assert lines["deliveries"] == "1 pending, 2 held, 0 delivered, 2 failed"
    assert lines["held for"] == "2 address"
    assert lines["held by"] == "2 mistyped (not registered)"
    assert sorted(lines["failed for"].partition(";")[0].split(", ")) == ["1 expired", "1 rejected"]
    assert lines["failed for"].endswith("; 1 of them money")
    assert lines["not registered"] == "mistyped"
    assert lines["needs a person"] == "2 failed, 1 of them money, 2 seen by nobody; see: webhooks failed"
    assert lines["most overdue"] == "evt-3"
    told = json.loads(run("status", "--json").stdout)
    assert told["failed_for"] == {"expired": 1, "rejected": 1}
    assert told["held_by"] == [{"merchant_id": "mistyped", "number": 2, "registered": False}]
    assert (told["failed_money"], told["needs_a_person"]["money_unseen"]) == (1, 1)
    assert (told["last_minute"]["accepted"], told["delivered_is_about"]) == (5, False)


def test_a_line_names_some_and_counts_the_rest(system: System) -> None:
    """However many merchants hold something, the screen stays one; programs get all of them."""
    for number in range(12):
        attempt(accept({**EVENT, "merchant_id": f"nobody-{number:02}"}))
    lines = screen()
    assert lines["not registered"].startswith("nobody-00, nobody-01")
    assert lines["not registered"].endswith("nobody-09 and 2 more")
    assert lines["held by"].endswith(" and 2 more")
    assert len(json.loads(run("status", "--json").stdout)["not_registered"]) == 12


def test_without_sweep_and_workers_each_is_a_line(system: System) -> None:
    """Nobody sweeps and nobody takes from the queues, and all else is told."""
    told = run("status")
    assert told.exit_code == 1
    assert "FAULT  sweep: none has ever been done" in told.stdout
    assert NO_WORKER in told.stdout
    assert "FAULT  ledger" not in told.stdout + told.stderr


@pytest.mark.parametrize(
    ("setting", "url", "faults", "known"),
    [
        ("database_url", "postgresql://nobody@127.0.0.1:1/none", ["ledger"], "queued messages       0"),
        ("broker_url", "redis://127.0.0.1:1/0", ["gate", "broker"], "deliveries            1 pending, 0 held"),
        ("redis_url", "redis://127.0.0.1:1/0", ["gate"], "queued messages       0"),
    ],
)
def test_what_is_away_is_one_line(system: System, setting: str, url: str, faults: list[str], known: str) -> None:
    """PostgreSQL, Redis or the gate's own: what they would know is a question mark, all else is told, and no trace."""
    accept({**EVENT, "merchant_id": "acme"})
    system.set(**{setting: url})
    told = system.run("webhooks", "status")  # Celery's application knows its broker for as long as its process lives
    assert (told.returncode, told.stderr) == (1, "")
    assert known in told.stdout
    assert "?" in told.stdout
    said = [line.split()[1].rstrip(":") for line in told.stdout.splitlines() if line.startswith("FAULT")]
    assert [part for part in said if part not in {"queue", "sweep"}] == faults


@pytest.fixture
def gate_of_its_own(system: System) -> Iterator[RedisServer]:
    """A Redis for the breakers alone."""
    server = RedisServer(system.folder / "gate").start()
    system.set(redis_url=server.url)
    yield server
    server.stop()


@pytest.mark.parametrize("command", ["status", "health"])
def test_a_gate_that_takes_no_writes_is_a_fault(system: System, gate_of_its_own: RedisServer, command: str) -> None:
    """As after a failover, or out of memory: it answers whoever only looks, and admits nothing."""
    with Redis.from_url(gate_of_its_own.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
    told = run(command)
    assert told.exit_code == 1
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("FAULT  gate")]
    assert line.startswith("FAULT  gate: the gate's Redis cannot be used: You can't write against a read only replica")
    assert "breakers not working  ?" not in told.stdout


@pytest.mark.parametrize("command", ["status", "health"])
def test_a_ledger_that_is_silent_is_not_waited_for(
    system: System, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It gets the time that counting takes only after it has said a word."""
    monkeypatch.setattr(judging, "_SOON", timedelta(seconds=1))
    monkeypatch.setattr(status, "_PATIENCE", timedelta(seconds=8))
    assert "FAULT  ledger" not in run(command).stdout  # which has opened connections
    with frozen(system.servers.postgres.url()):
        told = run(command)
    assert "FAULT  ledger: the ledger cannot be used: " in told.stdout
    assert "it has not answered within" not in told.stdout


@pytest.fixture
def looks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C after the second look."""

    def wait() -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    waits = wait()
    monkeypatch.setattr(status, "sleep", lambda _: next(waits))


@pytest.mark.usefixtures("looks_twice")
def test_watching_goes_on_until_ctrl_c(system: System) -> None:
    """Into a pipe one look goes after the other, each with its moment; the end is a good one."""
    told = run("status", "--watch")
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.count("last minute") == 2
    assert told.stdout.count(" UTC\n") == 2
    assert told.stdout.count(NO_WORKER) == 2


@pytest.mark.usefixtures("looks_twice")
def test_watching_as_json_is_an_object_a_line(system: System) -> None:
    """For a program that reads them as they come."""
    told = run("status", "--watch", "0.5", "--json")
    assert told.exit_code == 0
    assert [json.loads(line)["deliveries"]["held"] for line in told.stdout.splitlines()] == [0, 0]
