"""The promises that the code cites by number stand in docs/promises.md, with tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_SECTION = re.compile(r"^## (I\d+): .+?$\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PROMISES = dict(_SECTION.findall((ROOT / "docs/promises.md").read_text(encoding="utf-8")))
CITING = [
    *(path for folder in ("webhooks", "tests", "benchmarks") for path in (ROOT / folder).rglob("*")),
    *(ROOT / "docs").glob("*.md"),
    *ROOT.glob("*.md"),
]


def test_they_are_numbered_without_a_gap() -> None:
    """Twelve of them, in their order."""
    assert list(PROMISES) == [f"I{number}" for number in range(1, 13)]


def test_every_promise_that_is_cited_is_there() -> None:
    """In code, tests and documents; a number that nobody explains promises nothing."""
    cited = {
        promise
        for path in CITING
        if path.suffix in {".py", ".lua", ".md"}
        for promise in re.findall(r"\bI[1-9]\d?\b", path.read_text(encoding="utf-8"))
    }
    assert cited
    assert cited - PROMISES.keys() == set()


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize(("where", "folder"), [("Kept in", "webhooks"), ("Tried by", "tests")])
def test_each_says_where_it_is_kept_and_what_tries_to_break_it(promise: str, where: str, folder: str) -> None:
    """By files that there are."""
    (line,) = re.findall(rf"^- {where} (.*)$", PROMISES[promise], re.MULTILINE)
    named = re.findall(r"`([\w/]+\.py)`", line)
    assert named
    assert [name for name in named if not (name.startswith(f"{folder}/") and (ROOT / name).is_file())] == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_documents_lead_to_them(document: str) -> None:
    """Whoever meets a number in the code finds what it stands for."""
    assert "(docs/promises.md)" in (ROOT / document).read_text(encoding="utf-8")
