"""README's lines run as they stand."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import webhooks
from tests.system import System

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
EVENT = "pay_1:paid"


def run(blocks: Sequence[str] = BLOCKS) -> str:
    """Run a producer's lines, one block after the other, and return what they print."""
    printed = io.StringIO()
    names: dict[str, Any] = {}
    try:
        with contextlib.redirect_stdout(printed):
            for block in blocks:
                exec(compile(block, "README.md", "exec"), names)
    finally:
        if "connection" in names:
            names["connection"].close()
    return printed.getvalue()


def test_the_map_names_every_module_and_room_once() -> None:
    """Whatever stands at the top of the package, but for its `__init__` and `__main__`."""
    package = Path(webhooks.__file__).parent
    there = [f"{path.stem}.py" for path in package.glob("[!_]*.py")]
    there += [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    (drawn,) = re.findall(r"^## The map$(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r"`(?:webhooks/)?(\w+(?:\.py|/))`", drawn)) == sorted(there)


def test_a_producers_lines_accept_one_event_however_often_they_run(system: System) -> None:
    """Both ways of accepting name the same event by the producer's own key, so a second run sends nothing new."""
    assert [run(), run()] == ["", ""]
    assert system.counted() == {"pending": 1}
    assert system.delivery(EVENT)["merchant_id"] == "acme"


def test_a_producers_lines_tell_what_to_do(system: System) -> None:
    """What is worth another call is told from what is not: here the ledger is away, and the id has another body."""
    with system.ledger_away():
        assert run(BLOCKS[:1]).startswith("call again, with the same event: ")
    webhooks.deliver.delay({"id": EVENT, "type": "a.b", "merchant_id": "acme"})
    assert run(BLOCKS[:1]).startswith("calling again would change nothing: id: pay_1:paid ")
    with pytest.raises(webhooks.EventConflict):
        run()


def test_every_error_that_readme_names_is_importable_from_the_package() -> None:
    """A producer imports from `webhooks` and from no module in it."""
    from webhooks import errors  # noqa: PLC0415

    known = {name for name, value in vars(errors).items() if isinstance(value, type)}
    named = {name for name in re.findall(r"`(\w+)`", README) if name in known} | _caught()
    assert named >= {"InvalidEvent", "EventConflict", "LedgerUnavailable"}
    assert named <= set(webhooks.__all__)


def _caught() -> set[str]:
    handlers = [node for block in BLOCKS for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ExceptHandler)]
    return {node.id for each in handlers for node in ast.walk(each.type or each) if isinstance(node, ast.Name)}
