"""A PostgreSQL that stands still: every connection stays open, new ones are taken, and nobody answers."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from signal import Signals
from urllib.parse import parse_qs, urlsplit

import psycopg2


@contextlib.contextmanager
def frozen(url: str, *, at_most: int = 30) -> Iterator[None]:
    """Stop the processes of the server behind `url`, whose socket lies in its own folder, for as long as this lasts.

    After `at_most` seconds they go on even where this process cannot see to it, since the server has frozen it too.
    """
    (folder,) = parse_qs(urlsplit(url).query)["host"]
    postmaster = int(Path(folder, "postmaster.pid").read_text().splitlines()[0])
    stopped = [postmaster]
    with contextlib.closing(psycopg2.connect(url, application_name="drill")) as connection:
        try:
            os.kill(postmaster, Signals.SIGSTOP)  # so that there is no session which the list below leaves out
            stopped += _sessions(connection)
            for pid in stopped[1:]:
                _signal(pid, Signals.SIGSTOP)
            with _thawed_after(at_most, stopped):
                yield
        finally:
            for pid in stopped:
                _signal(pid, Signals.SIGCONT)


@contextlib.contextmanager
def _thawed_after(seconds: int, pids: list[int]) -> Iterator[None]:
    command = f"sleep {seconds}; kill -CONT {' '.join(map(str, pids))}"
    with subprocess.Popen(["sh", "-c", command], start_new_session=True) as thawing:
        try:
            yield
        finally:
            os.killpg(thawing.pid, Signals.SIGKILL)


def _sessions(connection: psycopg2.extensions.connection) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity")
        return [pid for (pid,) in cursor.fetchall()]


def _signal(pid: int, how: Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended since
        os.kill(pid, how)
