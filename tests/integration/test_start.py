"""What keeps a process from starting is one line, with exit status 2; what need not keep it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg2
import pytest

from tests.system import System
from webhooks import parts
from webhooks.errors import LedgerOutdated, SettingsError
from webhooks.ledger import schema
from webhooks.ledger.database import Database
from webhooks.process.spelling import is_of_kubernetes
from webhooks.settings import Settings, get_settings


def test_the_module_beside_the_process_is_found(system: System) -> None:
    """`WEBHOOKS_CELERY_CONFIG=celeryconfig` means the file in the working directory, also of an installed command."""
    (system.folder / "beside.py").write_text("worker_concurrency = 3\n")
    system.set(celery_config="beside")
    celery = str(Path(sys.executable).with_name("celery"))
    done = subprocess.run(
        [celery, "-A", "webhooks", "report"],
        cwd=system.folder,
        env=system.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "worker_concurrency: 3" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("proxy_url", "https://user:canary@proxy:3128", "the proxy must be given as http://"),
        ("ca_bundle", "", "the CA bundle"),
    ],
)
def test_a_worker_that_could_send_nothing_does_not_start(system: System, name: str, value: str, why: str) -> None:
    """A proxy that cannot be used and a CA bundle that is none are told at start, not at every attempt."""
    no_bundle = system.folder / "empty.pem"
    no_bundle.write_text("no certificate\n")
    system.set(**{name: value or no_bundle})
    done = system.run("celery", "-A", "webhooks", "worker")
    assert done.returncode == 2
    assert why in done.stderr.splitlines()[-1]
    assert "canary" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BROKER_URL", "redis://:canary/cret@host:6379/0"),
        ("BROKER_URL", "redis://localhost:canary/0"),
        ("REDIS_URL", "rediss://:a@canary@host/0"),
        ("DATABASE_URL", "postgresql://user:ab@canary@host/db"),
        ("DATABASE_URL", "postgresql://user:pw@host:canary/db"),
        ("MAX_AGE", "99999999999999d"),
    ],
)
def test_a_malformed_value_is_named_and_not_repeated(system: System, name: str, value: str) -> None:
    """One line that names the setting; no piece of what may be a password."""
    system.set(**{name.lower(): value})
    done = system.run("webhooks", "status")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert f"WEBHOOKS_{name}: " in done.stderr
    assert "canary" not in done.stderr


_SERVICES = {
    "SERVICE_HOST": "10.0.0.1",
    "SERVICE_PORT": "6379",
    "SERVICE_PORT_HTTP_API": "6379",
    "PORT": "tcp://10.0.0.1:6379",
    "PORT_6379_TCP": "tcp://10.0.0.1:6379",
    "PORT_6379_TCP_PROTO": "tcp",
    "PORT_6379_TCP_PORT": "6379",
    "PORT_6379_TCP_ADDR": "10.0.0.1",
    "PORT_53_UDP": "udp://10.0.0.1:53",
    "PORT_53_SCTP_ADDR": "fd00::1",
}


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("service", ["WEBHOOKS", "WEBHOOKS_REDIS", "WEBHOOKS_FLOWER_2"])
def test_what_kubernetes_sets_is_no_mistake(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a Service has the name webhooks or webhooks-…, every pod gets variables that look like settings."""
    for name, value in _SERVICES.items():
        monkeypatch.setenv(f"{service}_{name}", value)
    assert get_settings().lane == 10


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    "mistake",
    ["WEBHOOKS_PORT", "WEBHOOKS_REDIS_PORT", "WEBHOOKS_PORT_TCP", "WEBHOOKS_SERVICE", "WEBHOOKS_SERVICE_HOSTS"],
)
def test_what_only_looks_like_kubernetes_is_refused(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who writes a port there believes that it sets something."""
    monkeypatch.setenv(mistake, "6379")
    with pytest.raises(SettingsError, match=f"{mistake} is not a setting"):
        get_settings()


@pytest.mark.usefixtures("system")
def test_no_setting_can_be_set_by_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service by an unlucky name, such as webhooks-metrics, would change it in every pod."""
    before = get_settings()
    theirs = "tcp://10.0.0.1:80"
    names = [f"WEBHOOKS_{name.upper()}" for name in Settings.model_fields]
    for name in (name for name in names if is_of_kubernetes(name, theirs)):
        monkeypatch.setenv(name, theirs)
    get_settings.forget()
    assert get_settings() == before


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(("text", "ports"), [("9464", [9464]), ("9464-9466", [9464, 9465, 9466])])
def test_ports_for_metrics_are_one_or_a_range(text: str, ports: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process of a host takes the first that is free."""
    monkeypatch.setenv("WEBHOOKS_METRICS_PORT", text)
    assert list(get_settings().metrics_port) == ports


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("text", ["x", "0", "9464-", "9466-9464", "65535-65536", "9464,9465", "-1"])
def test_what_are_no_ports_for_metrics_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line that says what they would be."""
    monkeypatch.setenv("WEBHOOKS_METRICS_PORT", text)
    with pytest.raises(SettingsError, match="WEBHOOKS_METRICS_PORT: it is neither a port nor a range"):
        get_settings()


def test_the_tables_of_the_next_release_stop_nobody(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """Workers are replaced one by one, and a release is taken back: its tables stay, and are told in the log."""
    system.sql("UPDATE alembic_version SET version_num = 'next'")
    schema.check(parts.database(), parts.observers())
    assert "of a later release" in caplog.text
    assert schema.upgrade(parts.database()) == ("next", "next")


def test_texts_go_to_the_ledger_as_utf8(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a PGCLIENTENCODING of the machine says."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert system.sql("SHOW client_encoding")[0][0] == "UTF8"


def test_a_database_in_another_alphabet_is_refused(system: System) -> None:
    """An answer that it cannot hold could not be written down, and would be sent again and again."""
    connection = psycopg2.connect(system.servers.postgres.url())
    connection.autocommit = True
    cursor = connection.cursor()
    name = f"{system.sql('SELECT current_database()')[0][0]}_latin"
    cursor.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    latin = Database(system.servers.postgres.url(name))
    with pytest.raises(LedgerOutdated, match="LATIN1"):
        schema.upgrade(latin)
    with pytest.raises(LedgerOutdated, match="LATIN1"):
        schema.check(latin)
    latin.dispose()
    cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")
    connection.close()
