"""Nothing that is secret shows anywhere (I9, F4): every way to fail, and every place where an operator may look.

The merchants' secrets, the tokens in their addresses and the bodies carry canaries. They may be in two places only: in
the ledger (where an answer that echoes a body keeps it in `attempts.excerpt`) and in what `merchant show` says of the
address.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from signal import SIGUSR1
from threading import Event

import pytest
from sqlalchemy import text

from tests.command import run
from tests.courier import accept, attempt
from tests.integration.test_flower import LOGIN
from tests.merchant import Merchant, Reply, Request, Reset, Stall
from tests.remains import texts_in
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.demo.embedded import free_port
from webhooks.errors import NotPossible, Unavailable
from webhooks.model import Changes, Operator, State
from webhooks.observing.lines import JsonLines
from webhooks.operating import breakers
from webhooks.process.once import once

CANARIES = ("SECCANARY", "OLDCANARY", "PATHCANARY", "QCANARY", "PWCANARY", "LOCCANARY", "4000CANARY")
SECRET, PREVIOUS = "SECCANARY of the tests", "OLDCANARY of the tests"
TOKENS = "/hooks/PATHCANARY?token=QCANARY"
DEADLINE = 5.0


def echo(request: Request) -> Reply:
    """Answer with the body that came, as a careless endpoint does."""
    return Reply(500, body=request.body)


ANSWERS: dict[str, list[Reply]] = {
    "timeout": [Reply.raw(Stall())],
    "reset": [Reply.raw(Reset())],
    "500": [Reply(500, body=b"sorry")],
    "404": [Reply(404, body=b"sorry")],
    "302": [Reply(302, headers=[("Location", "https://user:PWCANARY@elsewhere.example/LOCCANARY?token=QCANARY")])],
    "garbage": [Reply.raw(b"\xff\x00 this is not HTTP\r\n\r\n", Reset())],
    "delivered": [Reply(200)],
}
STORED = {
    "password": "https://user:PWCANARY@localhost" + TOKENS,
    "half a bracket": "https://[::1" + TOKENS,
    "empty label": "https://a..b" + TOKENS,
    "long label": f"https://{'a' * 64}.example{TOKENS}",
    "bad port": "https://localhost:99999" + TOKENS,
    "line break": "https://localhost/\r\nX-Evil: PATHCANARY?token=QCANARY",
    "no URL": "PATHCANARY?token=QCANARY",
    "dns": "https://no-such-host.invalid" + TOKENS,
}


def found_in(text: str) -> set[str]:
    """Return the canaries that a text holds."""
    return {canary for canary in CANARIES if canary in text}


class Scene:
    """A merchant for every way to fail, each with one delivery; `failing` are the ids of those that do."""

    def __init__(self, system: System) -> None:
        self.system = system
        for name, replies in ANSWERS.items():
            self._merchant(name).answers(*replies)
        self._merchant("echo").answer_with(echo)
        self._merchant("tls", Merchant(system.ca, expired=True))
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        for name, url in {**STORED, "refused": f"https://localhost:{port}{TOKENS}"}.items():
            self._store(name, url)
        self._store("undecryptable", f"https://localhost:{port}{TOKENS}")
        system.sql("UPDATE endpoints SET secret = 'SECCANARY' WHERE id = 'undecryptable'")
        self.merchants = [*ANSWERS, *STORED, "echo", "tls", "refused", "undecryptable"]

    def _merchant(self, name: str, merchant: Merchant | None = None) -> Merchant:
        merchant = self.system.keep(merchant or Merchant(self.system.ca))
        self._store(name, merchant.url(TOKENS))
        return merchant

    def _store(self, name: str, url: str) -> None:
        """Store an address behind the back of its checks, in the middle of a rotation."""
        parts.endpoints().set(name, Changes(url="https://example.com/", secret=PREVIOUS, standard_headers=True))
        parts.endpoints().rotate(name, secret=SECRET, overlap=timedelta(hours=1))
        self.system.sql("UPDATE endpoints SET url = :url WHERE id = :id", url=url, id=name)

    def event(self, name: str) -> dict[str, str]:
        """Return an event for a merchant."""
        return {"id": f"to-{name.replace(' ', '-')}", "type": "payment.status_changed", "status": "paid",
                "merchant_id": name, "card": "4000CANARY"}  # fmt: skip


@pytest.fixture
def scene(system: System) -> Scene:
    """Every way to fail; retries wait long, so that they are there to be looked at."""
    system.set(deadline=DEADLINE, fast_waits="120,120", slow_waits="120,120")
    return Scene(system)


def flower_says(port: int, ids: list[str]) -> Iterator[tuple[str, str]]:
    """Return what Flower's API, pages and metrics say."""
    paths = ["/api/tasks", "/api/workers?refresh=1", "/tasks", "/workers", "/broker", "/metrics"]
    for path in [*paths, *(f"/task/{delivery_id}" for delivery_id in ids)]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
        request.add_header("Authorization", f"Basic {base64.b64encode(LOGIN.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            yield f"Flower {path}", answer.read().decode()


def inspected(what: str) -> str:
    """Ask the worker as `celery inspect` does."""
    return json.dumps(getattr(app.control.inspect(timeout=10, limit=1), what)() or {})


def command_says(ids: list[str]) -> Iterator[tuple[str, str]]:
    """Return what operators' commands print, of `delivery show` only where no answer holds the body."""
    commands = [["status"], ["delivery", "list"], ["delivery", "list", "--json"], ["breaker", "list"], ["audit"]]
    for command in [*commands, *(["delivery", "show", each, "--json"] for each in ids), ["breaker", "show", "500"]]:
        yield f"webhooks {' '.join(command)}", run(*command).output


def test_no_canary_shows(scene: Scene) -> None:
    """Logs at DEBUG, messages, inspect, Flower and commands know nothing of secrets, tokens and bodies."""
    system = scene.system
    port = free_port()
    system.stage.flower(port, LOGIN)
    worker = system.start("-l", "DEBUG")
    ids = {name: deliver.delay(scene.event(name)).id for name in scene.merchants}
    told: list[tuple[str, str]] = []

    def in_flight() -> bool:
        told.append(("inspect active", inspected("active")))
        return "to-timeout" in told[-1][1]

    system.wait_until(in_flight, "an attempt is in flight to be looked at")
    told += [("Redis, in flight", text) for text in texts_in(system.servers.redis.url)]
    # On a machine without a name server an unknown host is our own fault, and no attempt is recorded.
    ours = {ids["undecryptable"], ids["dns"]}
    system.wait_until(
        lambda: {row.delivery_id for row in system.sql("SELECT delivery_id FROM attempts")} >= {*ids.values()} - ours,
        "every attempt has ended",
    )
    system.wait_until(lambda: ids["dns"] in worker.log.read_text(), "an unknown host has been met")
    system.wait_until(lambda: "cannot be decrypted" in worker.log.read_text(), "our own fault has been met")
    assert "DEBUG" in worker.log.read_text()
    told += [(f"inspect {what}", inspected(what)) for what in ("scheduled", "reserved", "active", "stats")]
    assert "to-500" in dict(told)["inspect scheduled"]
    listed = system.run("celery", "-A", "webhooks", "inspect", "scheduled")
    told.append(("celery inspect scheduled", listed.stdout + listed.stderr))
    told += [("Redis", text) for text in texts_in(system.servers.redis.url)]
    told += flower_says(port, [ids["500"], ids["password"], ids["undecryptable"], ids["echo"]])
    told += command_says([each for name, each in ids.items() if name != "echo"])
    told += [(program.log.name, program.log.read_text(errors="replace")) for program in system.stage.programs]

    assert {(where, canary) for where, text in told for canary in found_in(text)} == set()
    assert_everything_failed_as_meant(system, ids)


def assert_everything_failed_as_meant(system: System, ids: dict[str, str]) -> None:
    """Check that each way to fail was met, and that the ledger's causes are clean; only the echo kept the body."""
    rows = system.sql("SELECT delivery_id, outcome, cause, excerpt FROM attempts")
    found = {row.delivery_id: row for row in rows}
    outcomes = {name: found[each].outcome for name, each in ids.items() if each in found}
    assert outcomes.pop("dns", "unavailable") == "unavailable"
    assert outcomes == {
        **dict.fromkeys(("timeout", "reset", "500", "garbage", "echo", "tls", "refused"), "unavailable"),
        **dict.fromkeys(STORED.keys() - {"dns"}, "unsendable"),
        "404": "rejected",
        "302": "misdirected",
        "delivered": "delivered",
    }
    assert found_in(" ".join(row.cause or "" for row in rows)) == set()
    assert {row.delivery_id for row in rows if found_in(row.excerpt or "")} == {ids["echo"]}
    assert system.counted()[State.DELIVERED] == 1


def test_no_canary_in_what_is_raised(scene: Scene) -> None:
    """The text of every error, with its causes, is clean, and so is what a claimed delivery looks like in a log."""
    for name in ("password", "dns", "refused", "undecryptable", "500"):
        message = accept(scene.event(name))
        try:
            raised: BaseException | None = None
            result = repr(attempt(message))
        except Unavailable as error:
            raised, result = error, ""
        while raised is not None:
            result += f"{raised!r} {raised}"
            raised = raised.__cause__ or raised.__context__
        assert found_in(result + repr(message)) == set()


def test_no_canary_in_lines_for_programs(scene: Scene) -> None:
    """Nor in a log of JSON at DEBUG, where every field of every fact is written down, and traces are."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    scene.system.set(log="json", deadline=0.5)
    parts.database().dispose()
    once.forget_all()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        for name in scene.merchants:
            with suppress(Unavailable):
                attempt(accept(scene.event(name)))
            with suppress(NotPossible):
                breakers.reset(Operator("somebody"), name)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    told = [json.loads(line) for line in written.getvalue().splitlines()]
    names = [each.get("name") for each in told]
    assert names.count("operator.acted") == names.count("breaker.reset") == len(scene.merchants)
    assert names.count("delivery.attempted") >= len(scene.merchants) - 2  # ours fail before one
    assert found_in(written.getvalue()) == set()


def test_no_canary_in_what_a_worker_says_it_is_at(system: System) -> None:
    """Asked by SIGUSR1 while it records an event by name: it tells where each thread is, and no variable."""
    worker = system.start()
    locked, may_end = Event(), Event()

    def lock() -> None:
        with parts.database().transaction() as transaction:
            transaction.rows(text("LOCK TABLE events IN EXCLUSIVE MODE"))
            locked.set()
            may_end.wait(30)

    with ThreadPoolExecutor() as pool:
        pool.submit(lock)
        assert locked.wait(30)
        app.send_task("webhooks.deliver", args=[{"id": "evt-1", "type": "x", "merchant_id": "a", "card": "4000CANARY"}])
        waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%accept_event%'"
        system.wait_until(lambda: system.sql(waiting), "the event waits for the lock")
        worker.send(SIGUSR1)
        system.wait_until(lambda: "in record" in worker.log.read_text(), "what its threads are at is told")
        may_end.set()
    assert found_in(worker.log.read_text()) == set()


def test_the_search_finds_what_there_is(system: System) -> None:
    """A canary in a message's base64 or in a plain value would be seen: the test above can fail."""
    app.send_task("webhooks.deliver", args=[{"type": "x", "merchant_id": "acme", "card": "4000CANARY"}])
    system.redis().hset("anything", "SECCANARY", "PWCANARY")
    seen = {canary for text in texts_in(system.servers.redis.url) for canary in found_in(text)}
    assert seen == {"4000CANARY", "SECCANARY", "PWCANARY"}
