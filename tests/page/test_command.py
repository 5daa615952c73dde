"""`webhooks dashboard` as a process."""

from __future__ import annotations

import re
from signal import SIGTERM

import requests

from tests.forks import Fork
from tests.page.conftest import TOKENS
from tests.system import System
from webhooks.demo.stage import Program


def test_the_program_serves_until_it_is_told_to_end(system: System, users: str) -> None:
    """It says where, answers there by the settings of its environment, and ends by itself when told to."""
    system.set(dashboard_users=users)
    arguments = ["-m", "webhooks", "dashboard", "--port", "0"]
    program = Program(arguments, system.environment, system.folder / "dashboard.log", Fork)
    program.start(ready="dashboard: http://127.0.0.1:")
    try:
        said = re.search(r"http://\S+", program.log.read_text())
        assert said
        assert requests.get(f"{said[0]}/alive", timeout=10).text == "ok\n"
        headers = {"Authorization": f"Bearer {TOKENS['lena']}"}
        assert requests.get(f"{said[0]}/api/endpoints", headers=headers, timeout=10).json() == {
            "items": [],
            "next": None,
        }
        assert program.process
        program.send(SIGTERM)
        assert program.process.wait(10) == 0
        assert "Traceback" not in program.log.read_text()
    finally:
        program.stop()


def test_a_place_that_is_taken_is_one_line(system: System, users: str) -> None:
    """It names the place and what is wrong with it."""
    system.set(dashboard_users=users)
    port = system.servers.redis.url.rpartition(":")[2].partition("/")[0]
    done = system.run("webhooks", "dashboard", "--port", port)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert f"cannot serve at 127.0.0.1:{port}" in done.stderr
