"""With parts away the page stays up: a line for each, never a trace."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from signal import Signals

import pytest
from redis import Redis

from tests.faults.frozen import frozen
from tests.page.conftest import Site
from tests.system import System
from webhooks import parts
from webhooks.demo.embedded import free_port
from webhooks.demo.stage import wait_until
from webhooks.gate.gate import Gate
from webhooks.ledger.audit import Audit
from webhooks.model import State
from webhooks.page import operations, rounds
from webhooks.page.overview import glance
from webhooks.policy.breaker import BreakerRules

WHY = {"why": "the merchant has asked for it"}


@contextlib.contextmanager
def asked_anew() -> Iterator[None]:
    """Let the next look ask the parts."""
    rounds.rounds.forget()
    glance.forget()
    yield


def all_said(site: Site, *words: str) -> str:
    """Return the overview once the parts have been asked."""
    found = ""

    def is_said() -> bool:
        nonlocal found
        found = site.text("/")
        return all(each in found for each in words)

    wait_until(is_said, f"the overview says {words}")
    return found


def test_with_the_ledger_away_each_page_says_so_in_a_line(site: Site, story: System) -> None:
    """The overview names the ledger and tells what the others say; any other page is one line and its status 503."""
    site.log_in()
    with story.ledger_away(), asked_anew():
        text = all_said(site, "fault", "ledger", "queue slow 0 wait")
        assert "? pending" in text
        for path in ("/deliveries", "/failed", "/delivery?id=evt-bad", "/audit"):
            page = site.get(path)
            assert page.status_code == 503
            assert "ledger: " in page.text
            assert "Traceback" not in page.text
        answer = site.api("POST", "/deliveries/cancel", json={"delivery_ids": ["evt-held"], **WHY})
        assert (answer.status_code, list(answer.json())) == (503, ["error"])
        assert answer.json()["error"].startswith("ledger: ")
        status = site.api("GET", "/status")
        assert (status.status_code, status.json()["ledger"]) == (200, None)
        assert "ledger" in {fault["part"] for fault in status.json()["faults"]}
    assert "evt-bad" in site.text("/failed")


def test_with_the_ledger_frozen_each_page_comes_back(
    site: Site, story: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection breaks and nobody answers: each page says so when its patience ends, and not the ledger's own."""
    monkeypatch.setattr(operations, "PATIENCE", timedelta(seconds=1))
    monkeypatch.setattr(rounds, "_PATIENCE", timedelta(seconds=1))
    site.log_in()

    def look(path: str) -> tuple[int, str]:
        page = site.session.get(site.url + path, timeout=10)  # half of the ledger's own
        return page.status_code, page.text

    paths = ["/deliveries", "/delivery?id=evt-bad", "/endpoint?id=strict", "/failed"]
    with frozen(story.environment["WEBHOOKS_DATABASE_URL"]), asked_anew(), ThreadPoolExecutor(len(paths)) as pool:
        for status, text in pool.map(look, paths):
            assert status == 503
            assert "ledger: the ledger " in text
        status, text = look("/")
        assert status == 200
        assert "<b>ledger</b> it has not answered within 3 s" in text
        faults = site.api("GET", "/status").json()["faults"]
        assert [fault["text"] for fault in faults if fault["part"] == "ledger"] == ["it has not answered within 3 s"]
    assert "evt-bad" in site.text("/failed")


def test_with_redis_frozen_gate_and_broker_are_a_line_each(
    site: Site, story: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take connections and answer nothing; what is the ledger's is there, and an act on it is done all the same.

    Flower does not hear of that act at once, since it would by the broker.
    """
    monkeypatch.setattr(rounds, "_PATIENCE", timedelta(seconds=1.5))
    site.log_in()
    with silent(story.servers.redis.url), asked_anew():
        all_said(site, " gate the gate", " broker ", "queue sweep ? wait", "1 held")
        assert "attempt 1" in site.text("/delivery?id=evt-again")
        assert "breaker the gate" in site.text("/endpoint?id=strict")
        told = site.act("replay_failures", delivery_ids="evt-bad", back="/failed", **WHY)
        assert "1 are being sent again" in told.text
    assert parts.views().delivery("evt-bad").delivery.state is State.HELD


@contextlib.contextmanager
def silent(redis_url: str) -> Iterator[None]:
    """Have a Redis take connections and answer nothing."""
    with Redis.from_url(redis_url) as client:
        pid = client.info("server")["process_id"]
    os.kill(pid, Signals.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, Signals.SIGCONT)


def test_with_the_gate_away_an_endpoint_is_shown_without_its_breaker(site: Site, story: System) -> None:
    """What the ledger knows is there, and in place of the breaker why not; a reset is refused, and not told as done."""
    site.log_in()
    with gate_away():
        page = site.text("/endpoint?id=strict")
        assert "evt-again" in page
        assert "breaker the gate" in page
        refused = site.act("reset_breaker", endpoint_id="strict", why="they are back")
        assert refused.status_code == 503
        assert "gate: " in refused.text
        with asked_anew():
            assert "Breakers that are open ?" in all_said(site, " gate the gate", "pending")
    assert parts.audit().latest(1).items == []


@contextlib.contextmanager
def gate_away() -> Iterator[None]:
    """Have the gate's Redis be one that is not there."""
    there = parts.gate()
    away = Gate(f"redis://127.0.0.1:{free_port()}/0", BreakerRules(), namespace="", observers=parts.observers())
    parts.gate._made[:] = [away]
    try:
        yield
    finally:
        parts.gate._made[:] = [there]


def test_without_sweep_and_workers_the_overview_says_what_to_start(site: Site, story: System) -> None:
    """A fault for each, in the words of the command."""
    site.log_in()
    text = all_said(site, "none has ever been done: is beat running", "no worker takes from it")
    assert "workers none answers" in text


def test_what_nobody_has_foreseen_is_not_told_in_its_words(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The page and the API say that it is a fault of ours; its trace is in the log alone."""

    def fail(*_: object) -> None:
        raise RuntimeError("canary")

    site.log_in()
    monkeypatch.setattr(Audit, "latest", fail)
    for answer in (site.get("/audit"), site.api("GET", "/audit")):
        assert answer.status_code == 500
        assert "a fault of this page" in answer.text
        assert "canary" not in answer.text
    assert "canary" in caplog.text
