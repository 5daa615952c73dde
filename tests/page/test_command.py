"""`webhooks dashboard` as a process."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from signal import SIGTERM

import requests

from tests.forks import Fork
from tests.page.conftest import TOKENS
from tests.system import System
from webhooks.demo.embedded import free_port
from webhooks.demo.stage import Program

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
