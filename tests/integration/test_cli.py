"""The operators' command: clear answers, one clear line for every mistake, and JSON on everything that prints."""

from __future__ import annotations

import json

import pytest

from tests.system import SECRET, System
from webhooks import deliver, parts

EVENT = {"id": "evt-1", "type": "kyc.status_changed", "status": "approved", "merchant_id": "acme", "note": "a body"}


def test_merchant_is_set_listed_and_shown(system: System) -> None:
    """A merchant can be registered, changed and looked at; its secret is printed once, when it is made."""
    made = system.run("webhooks", "merchant", "set", "acme", "--url", "https://acme.example/hook", "--generate-secret")
    assert made.returncode == 0, made.stderr
    secret = next(line.split()[-1] for line in made.stdout.splitlines() if line.startswith("secret "))
    assert len(secret) >= 32
    moved = system.run("webhooks", "merchant", "set", "acme", "--url", "https://acme.example/new")
    assert "https://acme.example/new" in moved.stdout
    shown = json.loads(system.run("webhooks", "merchant", "show", "acme", "--json").stdout)
    assert (shown["id"], shown["url"], shown["has_secret"]) == ("acme", "https://acme.example/new", True)
    listed = system.run("webhooks", "merchant", "list").stdout
    assert "acme" in listed
    assert secret not in moved.stdout + listed + json.dumps(shown)
    assert bytes(system.sql("SELECT secret FROM endpoints")[0].secret) != secret.encode()


def test_secret_from_standard_input(system: System) -> None:
    """`--secret -` reads the secret where no process list or shell history shows it."""
    done = system.run(
        "webhooks", "merchant", "set", "acme", "--url", "https://acme.example/", "--secret", "-", stdin=f"{SECRET}\n"
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://acme.example/hook", "https"),
        ("https:///hook", "host"),
        ("https://user:pass@acme.example/", "user name or password"),
        ("https://acme.example:99999/", "port"),
        ("https://127.0.0.1/", "public"),
        ("nonsense", "https"),
    ],
)
def test_bad_addresses_are_refused_with_the_reason(system: System, url: str, why: str) -> None:
    """`merchant set` refuses a bad URL in one line that says why, and registers nothing."""
    system.set(allow_private_addresses="false")
    done = system.run("webhooks", "merchant", "set", "acme", "--url", url, "--generate-secret")
    assert done.returncode == 1
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "pass" not in done.stderr.replace("password", "")
    assert system.sql("SELECT id FROM endpoints") == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["merchant", "set", "acme"], "nothing to set"),
        (["merchant", "set", "acme", "--url", "https://acme.example/"], "has no secret yet"),
        (["merchant", "set", "acme", "--secret", "a", "--generate-secret"], "exclude each other"),
        (["merchant", "show", "nobody"], "no merchant nobody"),
        (["delivery", "show", "nothing"], "no delivery nothing"),
    ],
    ids=" ".join,
)
def test_mistakes_are_answered_in_one_line(system: System, arguments: list[str], why: str) -> None:
    """A mistake is answered by one line that says what to do, with exit status 1."""
    done = system.run("webhooks", *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert why in done.stderr


def test_status_says_how_things_stand(system: System) -> None:
    """`status` counts deliveries and messages, in words and as JSON."""
    deliver.delay(EVENT)
    told = json.loads(system.run("webhooks", "status", "--json").stdout)
    assert told["deliveries"] == {"pending": 1, "held": 0, "delivered": 0, "failed": 0}
    assert told["queued_messages"] == 1
    assert told["breakers_not_working"] == {}
    assert "1 pending" in system.run("webhooks", "status").stdout


def test_status_names_the_part_that_is_away(system: System) -> None:
    """With the ledger away, `status` says so in its line, tells the rest, and exits 1."""
    system.set(database_url="postgresql://nobody@127.0.0.1:1/none")
    done = system.run("webhooks", "status")
    assert done.returncode == 1
    assert done.stdout.count("the ledger cannot be used") == 1
    assert "queued messages" in done.stdout
    assert done.stderr == ""


def test_upgrade_can_be_repeated(system: System) -> None:
    """`db upgrade` brings an empty database up to date, and does nothing the second time."""
    system.sql("DROP SCHEMA public CASCADE")
    system.sql("CREATE SCHEMA public")
    first = json.loads(system.run("webhooks", "db", "upgrade", "--json").stdout)
    second = json.loads(system.run("webhooks", "db", "upgrade", "--json").stdout)
    assert (first["before"], second["before"]) == (None, first["after"])


MISSING = ({"database_url": ""}, "WEBHOOKS_DATABASE_URL is not set")
MALFORMED = ({"slow_waits": "15 minutes"}, "WEBHOOKS_SLOW_WAITS: '15 minutes' is not a duration")
MISTYPED = ({"deadlin": "10"}, "WEBHOOKS_DEADLIN is not a setting; did you mean WEBHOOKS_DEADLINE?")


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("webhooks status", MISSING),
        ("webhooks status", MALFORMED),
        ("webhooks status", MISTYPED),
        ("celery -A webhooks worker", MISSING),
        ("celery -A webhooks worker", MALFORMED),
        ("celery -A webhooks beat", MISSING),
        ("celery -A webhooks flower", MISTYPED),
        ("celery -A webhooks inspect ping", MISSING),
        ("celery -A webhooks purge -f", MALFORMED),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1].split()[0],
)
def test_bad_settings_are_one_line_and_exit_2(
    system: System, command: str, mistake: tuple[dict[str, str], str]
) -> None:
    """A missing, malformed or mistyped setting is one line at start, with exit status 2, whatever is started."""
    settings, why = mistake
    system.set(**settings)
    done = system.run(*command.split())
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert why in done.stderr


def test_an_address_that_is_set_while_the_gate_is_away(system: System) -> None:
    """It is set, told to the audit, and the secret printed; one line says what is left to do."""
    system.set(redis_url="redis://127.0.0.1:1/0")
    url = "https://acme.example/hook"
    done = system.run("webhooks", "merchant", "set", "acme", "--url", url, "--generate-secret")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "run: webhooks breaker reset acme" in done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("secret ")]
    registered = parts.endpoints().find("acme")
    assert registered
    assert registered.url == url
    assert parts.audit().latest(1).items[0].what == "set address, secret of acme"


def test_worker_without_tables_says_what_to_do(system: System) -> None:
    """A worker on a ledger without tables ends at once, with the command that helps."""
    system.sql("DROP SCHEMA public CASCADE")
    system.sql("CREATE SCHEMA public")
    done = system.run("celery", "-A", "webhooks", "worker")
    assert done.returncode == 2
    assert "webhooks: the ledger has no tables yet; run: webhooks db upgrade" in done.stderr


def test_celeryconfig_cannot_undo_a_guarantee(system: System) -> None:
    """A deployment's module may tune, and is refused where it would undo what deliveries depend on."""
    (system.folder / "ours.py").write_text("worker_concurrency = 2\n")
    (system.folder / "wrong.py").write_text("task_acks_late = False\n")
    system.set(celery_config="wrong")
    refused = system.run("celery", "-A", "webhooks", "report")
    assert refused.returncode == 2
    assert "wrong may not set task_acks_late" in refused.stderr
    system.set(celery_config="ours")
    assert "worker_concurrency: 2" in system.run("celery", "-A", "webhooks", "report").stdout
