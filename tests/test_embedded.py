"""Servers of one's own leave nothing running behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from webhooks.demo.embedded import PostgresServer
from webhooks.demo.stage import wait_until


def test_a_restarted_postgres_is_stopped() -> None:
    """The one that runs since, and not the one that was started first."""
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # short: the socket is a file in it
        server = PostgresServer(Path(folder) / "postgres").start()
        server.restart()
        restarted = int((Path(folder) / "postgres" / "postmaster.pid").read_text().split()[0])
        assert is_there(restarted)
        server.stop()
        wait_until(lambda: not is_there(restarted), "it is gone", timeout=5)


def is_there(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
