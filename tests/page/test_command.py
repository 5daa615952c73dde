"""`webhooks dashboard` as a process."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from signal import SIGTERM
from typing import Any

import pytest
import requests

from tests.forks import Fork
from tests.page.conftest import PASSWORD, TOKENS, Site
from tests.system import System
from webhooks.demo.embedded import free_port
from webhooks.demo.stage import Program
from webhooks.observing.log import LogStyle

HEADERS = {"Authorization": f"Bearer {TOKENS['lena']}"}


@contextlib.contextmanager
def running(system: System) -> Iterator[str]:
    """Run the program, and give its address; once the block is left it must end by itself when told to."""
    arguments = ["-m", "webhooks", "dashboard", "--port", "0"]
    program = Program(arguments, system.environment, system.folder / "dashboard.log", Fork)
    program.start(ready="dashboard: http://127.0.0.1:")
    try:
        said = re.search(r"http://\S+", program.log.read_text())
        assert said
        yield said[0]
        assert program.process
        program.send(SIGTERM)
        assert program.process.wait(10) == 0
        assert "Traceback" not in program.log.read_text()
    finally:
        program.stop()


def test_the_program_serves_until_it_is_told_to_end(system: System, users: str) -> None:
    """It says where, answers there by the settings of its environment, and ends by itself when told to."""
    system.set(dashboard_users=users)
    with running(system) as url:
        assert requests.get(f"{url}/alive", timeout=10).text == "ok\n"
        endpoints = requests.get(f"{url}/api/endpoints", headers=HEADERS, timeout=10)
        assert endpoints.json() == {"items": [], "next": None}


TEXT = re.compile(r"\[(?P<time>\S+): (?P<level>[A-Z]+)\] (?P<name>operator\.\w+) (?P<fields>{.*})", re.ASCII)


def told(line: str) -> dict[str, Any]:
    """Return what a line of the log says, in either style."""
    found = TEXT.fullmatch(line)
    fields = found.groupdict() if found else {}
    return {**fields, **json.loads(fields.pop("fields", line))}


@pytest.mark.parametrize("style", list(LogStyle))
def test_who_comes_and_goes_is_a_line_of_the_log(system: System, users: str, style: LogStyle) -> None:
    """With its time, who it was and from where; never a password, not even one that was typed as the name."""
    system.set(dashboard_users=users, log=style)
    with running(system) as url:
        site = Site(url)
        for name, password in ((PASSWORD, ""), ("lena", "canary"), ("lena", PASSWORD)):
            site.log_in(name, password)
        site.post("/logout", {"form_token": site.token_of("/audit")})
    log = (system.folder / "dashboard.log").read_text()
    lines = [told(line) for line in log.splitlines() if "operator." in line]
    assert [(line["level"], line["name"], line.get("who")) for line in lines] == [
        ("WARNING", "operator.login_failed", None),
        ("WARNING", "operator.login_failed", "lena"),
        ("INFO", "operator.logged_in", "lena"),
        ("INFO", "operator.logged_out", "lena"),
    ]
    assert {line["origin"] for line in lines} == {"127.0.0.1"}
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines)
    assert PASSWORD not in log
    assert "canary" not in log


def test_with_redis_away_the_program_starts_and_names_the_parts(system: System, users: str) -> None:
    """Broker and gate are a fault each, in a line; what the ledger knows is told all the same."""
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    system.set(dashboard_users=users, broker_url=nowhere)
    with running(system) as url:
        status = requests.get(f"{url}/api/status", headers=HEADERS, timeout=60)
        assert status.status_code == 200
        faults = status.json()["faults"]
        assert {fault["part"] for fault in faults} >= {"broker", "gate"}
        assert all("\n" not in fault["text"] for fault in faults)
        assert status.json()["ledger"]["pending"] == 0


def test_a_place_that_is_taken_is_one_line(system: System, users: str) -> None:
    """It names the place and what is wrong with it."""
    system.set(dashboard_users=users)
    port = system.servers.redis.url.rpartition(":")[2].partition("/")[0]
    done = system.run("webhooks", "dashboard", "--port", port)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert f"cannot serve at 127.0.0.1:{port}" in done.stderr
