"""The house in order: what ships, what is configured, what the documents promise."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet

ROOT = Path(__file__).parent.parent
PURE = {"__future__", "collections", "dataclasses", "datetime", "email", "enum", "typing", "webhooks"}


def test_wheel_holds_everything(tmp_path: Path) -> None:
    """Every module, Lua script, migration and py.typed is in the wheel, and nothing but the package."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "webhooks").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == wanted
    assert {"webhooks/py.typed", "webhooks/gate/lua/admit.lua", "webhooks/ledger/migrations/env.py"} <= shipped


@pytest.mark.parametrize("path", sorted((ROOT / "webhooks/policy").glob("*.py")), ids=lambda path: path.stem)
def test_rules_are_pure(path: Path) -> None:
    """The rules import data tools only, and never read the clock or throw dice."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= PURE
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not called & {"now", "utcnow", "today", "time", "monotonic", "random"}


def compose() -> dict[str, Any]:
    """Read docker-compose.yml with its merge keys resolved."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return loaded


def test_compose_describes_the_whole_system() -> None:
    """Redis keeps its data, everything has a health check, and services wait for what they need."""
    services = compose()["services"]
    assert set(services) == {"redis", "postgres", "migrate", "worker", "slow", "sweep", "beat", "flower", "dashboard"}
    assert "--appendonly yes" in services["redis"]["command"]
    assert "noeviction" in services["redis"]["command"]
    assert all("healthcheck" in service for name, service in services.items() if name != "migrate")
    for name in ("worker", "sweep", "beat", "flower", "dashboard"):
        assert set(services[name]["depends_on"]) == {"redis", "postgres", "migrate"}
    volumes = {
        volume.partition(":")[0] for name in ("redis", "postgres", "flower") for volume in services[name]["volumes"]
    }
    assert volumes == set(compose()["volumes"])


@pytest.mark.parametrize(
    ("service", "asks"), [("worker", "--worker"), ("sweep", "--worker --system"), ("beat", "--beat")]
)
def test_health_checks_ask_what_can_fail(service: str, asks: str) -> None:
    """They type `webhooks health` for the node that their service starts, and show a standstill within a minute."""
    from webhooks.cli.status import health  # noqa: PLC0415
    from webhooks.health.judging import FRESH  # noqa: PLC0415

    described = compose()["services"][service]
    check = described["healthcheck"]
    how, program, word, *options = check["test"]
    assert (how, program, word) == ("CMD", "webhooks", "health")
    given = health.make_context("health", list(options)).params
    assert {f"--{name}" for name in ("worker", "system", "beat") if given["name" if name == "worker" else name]} == set(
        asks.split()
    )
    if given["name"]:
        assert f"--hostname {given['name']} " in described["command"]
    assert check["retries"] == 1
    assert FRESH.total_seconds() + int(check["interval"].removesuffix("s")) <= 60


def test_no_secret_in_compose_or_procfile() -> None:
    """Every password and key comes from the environment, and is required."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for name in ("POSTGRES_PASSWORD", "WEBHOOKS_SECRETS_KEY", "FLOWER_PASSWORD"):
        assert re.search(rf"\$\{{{name}:\?", text)
        assert not re.search(rf"\$\{{{name}(:?-|\}})", text)
    assert "${FLOWER_PASSWORD:?" in (ROOT / "Procfile").read_text(encoding="utf-8")


def test_the_lines_that_make_composes_secrets_make_good_ones(tmp_path: Path) -> None:
    """Before Compose can be asked anything there are all secrets that it wants; another run keeps them."""
    guide = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    lines, *others = [
        each for each in re.findall(r"^```sh\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL) if ".env" in each
    ]
    assert not others
    made = []
    for _ in range(2):
        subprocess.run(["sh", "-euc", lines], cwd=tmp_path, check=True)
        made.append((tmp_path / ".env").read_text())
    assert made[0] == made[1]
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    secrets = dict(line.split("=", 1) for line in made[0].splitlines())
    assert secrets.keys() == set(re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    Fernet(secrets["WEBHOOKS_SECRETS_KEY"])
    assert all(re.fullmatch(r"[0-9a-f]{32}", secrets[name]) for name in ("POSTGRES_PASSWORD", "FLOWER_PASSWORD"))


def test_the_documents_say_which_compose_is_needed() -> None:
    """An env_file that may be missing is known to Compose since 2.24."""
    services = compose()["services"]
    assert any(each.get("required") is False for each in services["worker"]["env_file"])
    for name in ("README.md", "docs/operations.md", "docker-compose.yml"):
        assert "2.24 or newer" in (ROOT / name).read_text(encoding="utf-8")


def test_flower_is_reached_from_the_host_only() -> None:
    """Its metrics answer without a login, so neither the Procfile nor Compose offers it to anybody else."""
    assert compose()["services"]["flower"]["ports"] == ["127.0.0.1:5555:5555"]
    assert "--address=${FLOWER_ADDRESS:-127.0.0.1} " in (ROOT / "Procfile").read_text(encoding="utf-8")


def test_the_dashboard_is_reached_from_the_host_only() -> None:
    """Its passwords travel over HTTPS or not at all, and that is a proxy's: nobody else is offered the plain port."""
    from webhooks.cli.dashboard import dashboard  # noqa: PLC0415

    assert compose()["services"]["dashboard"]["ports"] == ["127.0.0.1:8090:8090"]
    assert dashboard.make_context("dashboard", []).params["address"] == "127.0.0.1"
    assert "dashboard: webhooks dashboard\n" in (ROOT / "Procfile").read_text(encoding="utf-8")


def test_settings_in_compose_exist() -> None:
    """docker-compose.yml and the Dockerfile name only settings that there are."""
    from webhooks.settings import Settings  # noqa: PLC0415

    known = {f"WEBHOOKS_{name.upper()}" for name in Settings.model_fields}
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8") + (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"WEBHOOKS_[A-Z][A-Z_]+", text)) <= known


def test_procfile_runs_what_there_is() -> None:
    """The Procfile's programs consume the queues that the application declares."""
    from webhooks.celery.app import DELIVERIES, SLOW, SWEEP  # noqa: PLC0415

    lines = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines())
    assert set(lines) == {"worker", "slow", "sweep", "beat", "flower", "dashboard"}
    assert f"--queues {DELIVERIES} " in lines["worker"]
    assert f"--queues {SLOW} " in lines["slow"]
    assert f"--queues {SWEEP} " in lines["sweep"]
    from webhooks.demo.stage import FLOWER  # noqa: PLC0415

    for option in (*FLOWER, "--persistent", "--state-save-interval=60000"):
        for command in (lines["flower"], compose()["services"]["flower"]["command"]):
            assert option in command.replace("=${FLOWER_READ_ONLY:-true}", "").split()
    # A password among the arguments could be read by everybody on the host.
    assert lines["flower"].startswith("FLOWER_BASIC_AUTH=")


def test_modules_stay_small() -> None:
    """No module is longer than 300 lines."""
    long = {path.name for path in (ROOT / "webhooks").rglob("*.py") if len(path.read_text().splitlines()) > 300}
    assert long == set()


def test_one_word_is_one_thing() -> None:
    """No two modules define a class, or a constant that others may use, by the same name; a port has its part's."""
    places: dict[str, list[str]] = {}
    for path in (path for path in (ROOT / "webhooks").rglob("*.py") if path.name != "ports.py"):
        for name in _defined(ast.parse(path.read_text(encoding="utf-8"))) - {"_T"}:
            places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def _defined(module: ast.Module) -> set[str]:
    classes = {node.name for node in module.body if isinstance(node, ast.ClassDef)}
    targets = [target for node in module.body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in module.body if isinstance(node, ast.AnnAssign)]
    names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return classes | {name for name in names if name[0].isupper()}


def test_constraints_pin_versions_only() -> None:
    """Each line of constraints.txt is a comment or name==version: no address of any index."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)
