"""What `webhooks` loads, and when: whoever verifies a signature or accepts an event waits for nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import assert_type

import pytest

import webhooks
from tests.system import System
from webhooks import cli

# What only workers, operators or the demo need, of ours and of others'.
NOT_A_PRODUCERS = {
    "webhooks.cli",
    "webhooks.delivery",
    "webhooks.demo",
    "webhooks.gate",
    "webhooks.health",
    "webhooks.page",
    "webhooks.parts",
    "webhooks.release",
    "webhooks.sweep",
    "webhooks.wire",
    "webhooks.celery.attempting",
    "webhooks.celery.by_name",
    "webhooks.celery.channel",
    "webhooks.celery.chores",
    "webhooks.celery.commands",
    "webhooks.celery.consuming",
    "webhooks.celery.control",
    "webhooks.celery.countdowns",
    "webhooks.celery.scheduling",
    "webhooks.celery.starting",
    "webhooks.health.workers",
    "webhooks.ledger.backlog",
    "webhooks.ledger.leases",
    "webhooks.ledger.schema",
    "webhooks.ledger.views",
    "alembic",
    "celery.bin",
    "celery.worker.consumer",
    "celery.worker.control",
    "flower",
    "flask",
    "idna",
    "redis",
    "requests",
    "rich",
    "sqlalchemy.orm",
    "urllib3",
    "waitress",
}
WITHOUT = "import runpy, sys; sys.modules[sys.argv[1]] = None; sys.argv = sys.argv[2:]; "


def new_process(program: str, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that has imported nothing, and return what it said."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=options or None)


def loaded_by(program: str) -> set[str]:
    """Return the modules that a new process has loaded after these lines, beyond those of a bare one."""
    told = new_process(f"import sys; before = {{*sys.modules}}\n{program}\nprint(*({{*sys.modules}} - before))")
    assert told.returncode == 0, told.stderr
    return set(told.stdout.split())


def test_signatures_need_the_standard_library_only() -> None:
    """A receiver that verifies them need not have Celery, SQLAlchemy or anything else, nor wait for it."""
    loaded = loaded_by("import webhooks.signing; webhooks.signing.verify")
    ours = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert ours == {"webhooks", "webhooks.signing"}


@pytest.mark.parametrize("names", ["deliver", "record", "app", "EventConflict, LedgerUnavailable, deliver, record"])
def test_a_producer_loads_nothing_of_workers_and_operators(names: str) -> None:
    """Neither what sends nor what sweeps, neither the commands nor Celery's worker."""
    loaded = loaded_by(f"from webhooks import {names}")
    assert "webhooks.ledger.ledger" in loaded
    assert loaded & NOT_A_PRODUCERS == set()


def test_what_only_others_need_exists() -> None:
    """A name that was mistyped, or has moved, would be missed by nobody."""
    program = f"from importlib import import_module\nfor name in {sorted(NOT_A_PRODUCERS)}: import_module(name)"
    assert loaded_by(program) >= NOT_A_PRODUCERS


def test_errors_load_neither_celery_nor_sqlalchemy() -> None:
    """They may be caught where nothing is sent."""
    assert not loaded_by("from webhooks import InvalidEvent") & {"celery", "sqlalchemy", "pydantic"}


def test_every_name_is_there_and_no_other() -> None:
    """`dir()` and `import *` name what there is, and a mistyped name is an AttributeError, as of any module."""
    assert {*webhooks.__all__} <= {*dir(webhooks)}
    assert all(getattr(webhooks, name) is not None for name in webhooks.__all__)
    assert webhooks.signing.sign is not None
    with pytest.raises(AttributeError, match="delivr"):
        _ = webhooks.delivr  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="delivr"):
        from webhooks import delivr  # type: ignore[attr-defined]  # noqa: F401, PLC0415


def typed(connection: object, error: webhooks.InvalidEvent) -> None:
    """Is looked at by mypy and never runs: a user of this package sees the types of its names."""
    assert_type(webhooks.record(connection, {}), str)
    assert_type(webhooks.record_many(connection, [{}]), list[str])
    assert_type(webhooks.deliver.many([{}]), list[str])
    assert_type(webhooks.signing.sign("secret", 1, b"body"), str)
    assert_type(str(error), str)
    webhooks.record(connection, "an event")  # type: ignore[arg-type]
    webhooks.deliver.many([1])  # type: ignore[list-item]


# What no command waits for that looks at something, and what one waits for that asks the gate, or the broker as well.
A_WORKERS = NOT_A_PRODUCERS - {"webhooks.celery.control", "webhooks.cli", "webhooks.health", "webhooks.health.workers"}
A_WORKERS -= {"webhooks.gate", "webhooks.ledger.backlog", "webhooks.ledger.leases", "webhooks.ledger.views"}
A_WORKERS -= {"redis", "rich", "webhooks.parts", "webhooks.release", "webhooks.sweep"}
A_WORKERS -= {"idna", "webhooks.wire"}  # which addresses may be set
A_WORKERS |= {"webhooks.celery.tasks", "webhooks.producing", "webhooks.wire.sender"}
THE_BROKERS = {"celery", "kombu", "webhooks.celery"}
THE_GATES = {"redis", "webhooks.gate.gate"}
THE_LEDGERS = {"psycopg2", "pydantic", "sqlalchemy", "webhooks.ledger", "webhooks.settings"}


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("--help", A_WORKERS | THE_BROKERS | THE_GATES | THE_LEDGERS | {"rich"}),
        ("--version", A_WORKERS | THE_BROKERS | THE_GATES | THE_LEDGERS | {"rich"}),
        ("secrets-key", A_WORKERS | THE_BROKERS | THE_GATES),
        ("delivery list", A_WORKERS | THE_BROKERS | THE_GATES),
        ("event refused", A_WORKERS | THE_BROKERS | THE_GATES),
        ("failed", A_WORKERS | THE_BROKERS | THE_GATES),
        ("audit", A_WORKERS | THE_BROKERS | THE_GATES),
        ("merchant list", A_WORKERS | THE_BROKERS | THE_GATES),
        ("endpoint list", A_WORKERS | THE_BROKERS | THE_GATES),
        ("breaker list", A_WORKERS | THE_BROKERS),
        ("merchant set acme --rate 5", A_WORKERS | THE_BROKERS),
        ("status", A_WORKERS),
        ("health", A_WORKERS),
    ],
)
def test_a_command_loads_what_it_needs_and_no_more(system: System, command: str, unwanted: set[str]) -> None:
    """Who looks at the ledger waits for neither Celery nor Redis, and nobody for what only a worker needs."""
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from webhooks.__main__ import main; main()"
    )
    told = new_process(program, *command.split(), **system.environment)
    assert {*told.stderr.split()} >= {"webhooks.cli"}
    assert {*told.stderr.split()} & unwanted == set()


def test_the_help_of_all_commands_says_what_each_is() -> None:
    """Its list is written by hand, so that it loads none of them."""
    for command in cli.COMMANDS:
        loaded = command.load()
        assert loaded.name == command.name
        assert str(command.short_help).endswith(".")
    assert len({command.name for command in cli.COMMANDS}) == len(cli.COMMANDS) == len(cli.main.commands)


def test_celerys_command_knows_our_remote_control(system: System) -> None:
    """Also the one that asks: Celery refuses there what it does not know."""
    ours = {
        "inspect": ("breaker MERCHANT", "consuming", "held [N]", "overdue [N]", "sweep"),
        "control": ("reset_breaker MERCHANT",),
    }
    for kind, names in ours.items():
        listed = new_process(
            "from celery.bin.celery import main; main()", "-A", "webhooks", kind, "--list", **system.environment
        )
        assert all(f"  {name} " in listed.stdout for name in names), listed


def test_a_worker_knows_its_tasks_and_refuses_a_revoke(system: System) -> None:
    """However it was started: what Celery has it load brings all of it."""
    program = (
        "import json; from webhooks import app; app.loader.init_worker()\n"
        "from celery.worker.control import Panel; from types import SimpleNamespace\n"
        "answer = Panel.data['revoke'](SimpleNamespace(app=app), task_id='evt-1')\n"
        "print(json.dumps([sorted(app.tasks), sorted(Panel.data), answer]))"
    )
    tasks, commands, answer = json.loads(new_process(program, **system.environment).stdout)
    assert {"webhooks.deliver", "webhooks.prune", "webhooks.sweep"} <= {*tasks}
    assert {"breaker", "consuming", "reset_breaker"} <= {*commands}
    assert answer["error"].startswith("deliveries are not revoked")


@pytest.mark.parametrize(
    ("command", "lacks", "extra"),
    [
        (("webhooks", "status"), "rich", "operate"),
        (("celery", "-A", "webhooks", "worker"), "requests", "worker"),
        (("celery", "-A", "webhooks", "beat"), "requests", "worker"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_an_extra_that_was_left_out_is_one_line(command: Sequence[str], lacks: str, extra: str) -> None:
    """Whoever runs what the installation was not made for reads what to install."""
    run = f"{WITHOUT}runpy.run_module({command[0]!r}, run_name='__main__', alter_sys=True)"
    told = new_process(run, lacks, *command)
    assert (told.returncode, told.stdout) == (2, "")
    line = f"webhooks: {lacks} is not installed; run: pip install 'webhook-delivery-worker[{extra}]'\n"
    assert told.stderr == line
