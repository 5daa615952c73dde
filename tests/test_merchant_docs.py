"""The merchants' documents: the code they quote is the code that runs, and both languages say the same."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.wire.test_headers import PAGE
from webhooks.accepting import reading
from webhooks.accepting.reading import MAX_BODY_BYTES
from webhooks.policy.ladders import FAST_WAITS, SLOW_WAITS
from webhooks.settings import Settings
from webhooks.signing import DEFAULT_TOLERANCE, verify
from webhooks.wire.request import USER_AGENT

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


def example(name: str) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of the request that a document shows."""
    head, body = blocks(name)["http"].split("\n\n")
    _, *lines = head.splitlines()
    return dict(line.split(": ", 1) for line in lines), body.rstrip("\n").encode()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_request_shown_is_one_that_we_send(name: str) -> None:
    """Its body is made of its event as every body is, its headers are ours, and a row explains each that is."""
    headers, body = example(name)
    event = reading.read(json.loads(body))
    assert (event.id, event.merchant_id, event.body) == (headers["X-Webhook-Id"], "acme", body)
    assert headers.keys() == PAGE
    assert headers["User-Agent"] == USER_AGENT
    assert all(f"| `{each}` | " in document(name) for each in headers if each != "Content-Type")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_request_shown_is_a_test_vector(name: str) -> None:
    """Its signature is right for the secret that is told, then and with these bytes, and not otherwise."""
    headers, body = example(name)
    (secret,) = re.findall(r"^SECRET='(.*)'$", blocks(name)["sh"], re.MULTILINE)
    stamp = headers["X-Webhook-Timestamp"]
    is_good = partial(verify, secret, timestamp=stamp, signature=headers["X-Webhook-Signature"])
    assert is_good(body=body, now=int(stamp))
    assert not is_good(body=body, now=int(stamp) + DEFAULT_TOLERANCE + 1)
    assert not is_good(body=body + b"\n", now=int(stamp))
    assert f"`{secret}`" in document(name)
    assert re.search(rf"\b{len(body)} (bytes|байт)", document(name))
    assert re.search(rf"\b{DEFAULT_TOLERANCE + 1} (seconds|секунд)", document(name))
    assert f"BODY='{body.decode()}'" in blocks(name)["sh"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_ids_are_remembered_as_long_as_a_copy_may_come(name: str) -> None:
    """A failed delivery can be replayed until it is pruned, and a replay has a fresh age."""
    kept, age = (Settings.model_fields[field].default for field in ("keep_failed", "max_age"))
    spans = re.findall(r"\*\*[^*]*?(\d+) (?:days|суток)\*\*", document(name))
    assert spans == [str((kept + age).days)]
    assert re.search(rf"{kept.days} (days|суток)", document(name))
    # Nor is another span told anywhere.
    assert set(re.findall(r"(\d+) (?:days|суток)", document(name))) == {"30", str(kept.days), *spans}


def test_the_russian_page_speaks_as_the_platforms_page_does() -> None:
    """It says «ты», writes decimals with a comma, and has none of the phrases that no Russian would write."""
    text = _BLOCK.sub("", document("merchants.ru.md"))
    assert re.findall(r"\b[Вв](?:ы|ас|ам|ами|аш\w*)\b", text) == []
    assert re.findall(r"\d\.\d[^`]* минут", text) == []
    for wrong in (
        "предохранитель не открыва",
        "Порядок не обещан",
        "ридерживаются",
        "На временных проблемах",
        "вою очередь",
    ):
        assert wrong not in text
    for right in ("на `4xx` не срабатывает", "около 8,5 минуты", "вебхуки удерживаются", "При временных проблемах"):
        assert right in text
    assert "порядок не гарантируется" in text.lower()
