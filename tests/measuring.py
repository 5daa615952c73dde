"""Which lines and branches of `webhooks` a test run has run, in all its processes: `-p tests.measuring`.

The package is instrumented as it is imported, so that nothing else pays for it; a line that was seen costs nothing any
more. Forked workers tell as well, unless a test kills them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import slipcover

_INTO = "MEASURED_INTO"  # the folder where each process leaves what it has seen
_PACKAGE = Path(__file__).parents[1] / "webhooks"
_begun: list[slipcover.Slipcover] = []


def is_on() -> bool:
    """Whether this run is measured."""
    return _INTO in os.environ


def begin(**options: Any) -> None:
    """Measure this process; before anything imports the package."""
    matcher = slipcover.FileMatcher(sources=[_PACKAGE])
    measured = slipcover.Slipcover(branch=True, source=[str(_PACKAGE)], **options)
    slipcover.wrap_spec_from_file_location(measured, matcher)  # as Alembic loads migrations
    slipcover.ImportManager(measured, matcher).__enter__()
    _begun.append(measured)


def _leave(what: object, suffix: str) -> None:
    path = Path(os.environ[_INTO], str(os.getpid()))
    path.write_text(json.dumps(what))
    path.rename(path.with_suffix(suffix))


def _leave_seen() -> None:
    """Leave the lines and branches that a forked process has seen; which there are the others know."""
    seen = {file: list(places) for each in (_begun[0].all_seen, _begun[0].newly_seen) for file, places in each.items()}
    _leave(seen, ".seen")


def ending() -> signal.Signals:
    """Return the signal that ends a forked process at once; a measured one leaves what it has seen first."""
    return signal.SIGRTMIN if is_on() else signal.SIGKILL


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Run a forked process; in the end, and on `ending()`, it leaves what it has seen."""
    if not _begun:
        yield
        return
    _begun[0].signal_child_process()
    signal.signal(signal.SIGRTMIN, _leave_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGRTMIN, signal.SIG_IGN)
        _leave_seen()


def _leave_at_once(_number: int, _frame: FrameType | None) -> None:
    _leave_seen()
    os._exit(0)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin, except where xdist hands the tests to other processes."""
    if not is_on():
        os.environ[_INTO] = tempfile.mkdtemp(prefix="measured-")
    hands_out = early_config.known_args_namespace.numprocesses and not _is_handed_tests()
    if not hands_out:
        begin()


def _is_handed_tests() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Leave what this process has seen."""
    if _begun:
        _leave(_begun[0].get_coverage(), ".coverage")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Put together what all processes have seen, and show it."""
    if _is_handed_tests():
        return
    into = Path(os.environ.pop(_INTO))
    found, seen = ([json.loads(path.read_text()) for path in into.glob(f"*.{what}")] for what in ("coverage", "seen"))
    shutil.rmtree(into)
    if found:
        whole, *others = found
        for other in [*others, _as_coverage(seen, whole)]:
            slipcover.merge_coverage(whole, other)
        terminalreporter.section(f"coverage, from {len(found)} processes of tests and {len(seen)} forked ones")
        slipcover.print_coverage(whole, outfile=terminalreporter, skip_covered=True, missing_width=50)


def _as_coverage(seen: Sequence[Mapping[str, Sequence[Any]]], whole: dict[str, Any]) -> dict[str, Any]:
    """Put what forked processes have seen into the form of what the others tell."""
    places: dict[str, set[Any]] = defaultdict(set)
    for each in seen:
        for path, some in each.items():
            places[os.path.relpath(path)].update(tuple(place) if isinstance(place, list) else place for place in some)
    files = {
        name: {
            "executed_lines": found & {*whole["files"][name]["executed_lines"], *whole["files"][name]["missing_lines"]},
            "executed_branches": {place for place in found if isinstance(place, tuple)},
        }
        for name, found in places.items()
    }
    return {**whole, "files": files}
