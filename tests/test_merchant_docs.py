"""The merchants' documents: the code they quote is the code that runs, and both languages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from webhooks.intake import MAX_BODY_BYTES
from webhooks.policy.ladders import FAST_WAITS, SLOW_WAITS

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["merchants.md", "merchants.ru.md"]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def document(name: str) -> str:
    """Return a document's text."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(name: str) -> dict[str, str]:
    """Return a document's blocks of code by their language."""
    return dict(_BLOCK.findall(document(name)))


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize(("language", "file"), [("python", "flask_app.py"), ("javascript", "express_app.js")])
def test_quoted_receivers_are_the_ones_that_run(name: str, language: str, file: str) -> None:
    """Each document quotes the receivers byte for byte."""
    assert blocks(name)[language] == (ROOT / "examples/receivers" / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("pattern", [r"^#+", r"^\| ", r"^\d\. ", r"^- ", r"^```\w*", r"`[^`\n]+`"])
def test_both_languages_say_the_same(pattern: str) -> None:
    """The two documents have the same headings, rows, points and blocks, and quote the same names and values."""
    english, russian = (
        [match.strip() for match in re.findall(pattern, document(name), re.MULTILINE)] for name in DOCUMENTS
    )
    translated = {"raw body": "сырое тело"}
    if pattern.startswith("`"):
        english = [each.replace("raw body", translated["raw body"]) for each in english]
        assert set(english) == set(russian)
    else:
        assert english == russian


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    """A link to a file names one that is there, and one within the document a heading of it."""
    for target in re.findall(r"\]\(([^)]+)\)", document(name)):
        if target.startswith("#"):
            headings = re.findall(r"^#+ (.*)$", document(name), re.MULTILINE)
            assert target[1:] in {heading.lower().replace(" ", "-") for heading in headings}
        elif not target.startswith("https://"):
            assert (ROOT / "docs" / target).resolve().is_file(), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_numbers_are_the_rules(name: str) -> None:
    """The ladders and bounds that merchants read are those of the code."""
    text = document(name)
    fast = [str(int(wait.total_seconds())) for wait in FAST_WAITS]
    assert re.search(", ".join(fast[:-1]) + rf" (and|и) {fast[-1]} ", text)
    hours = [wait.total_seconds() / 3600 for wait in SLOW_WAITS]
    assert [float(number) for number in re.findall(r"(\d+) (?:hour|час)", _slow(text))][:4] == hours[1:]
    assert f"{MAX_BODY_BYTES // 1024} KiB" in text


def _slow(text: str) -> str:
    return next(line for line in text.splitlines() if "15 min" in line or "15 мин" in line)
