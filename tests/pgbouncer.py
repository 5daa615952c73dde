"""A PgBouncer of one's own in transaction mode, before a PostgreSQL that a test or the drill has started.

It is the Debian package's `pgbouncer`; where that is missing, `is_installed()` says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

import psycopg2

from webhooks.demo.embedded import free_port
from webhooks.demo.stage import wait_until
from webhooks.errors import NotPossible

MISSING = "pgbouncer is not installed (Debian: apt-get install pgbouncer)"

_INI = """
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
logfile = {folder}/log
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 1000
server_login_retry = 1
"""


def is_installed() -> bool:
    """Whether there is a PgBouncer on this machine."""
    return _binary() is not None


def _binary() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")


class PgBouncer:
    """Hands the transactions of any number of clients to `pool_size` sessions of the server behind `url`.

    `url` is that of any database of the server, which is reached by TCP or by the folder of its socket.
    """

    def __init__(self, url: str, *, pool_size: int = 5) -> None:
        self._url = urlsplit(url)
        self._pool_size = pool_size
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="webhooks-pgbouncer-"))
        self.port = free_port()

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of the server's databases, by way of the pooler."""
        return f"postgresql://{self._user}@127.0.0.1:{self.port}/{database}"

    @property
    def _user(self) -> str:
        return self._url.username or "postgres"

    def start(self) -> Self:
        """Start, or start again on the same port. Raises NotPossible where it is not installed."""
        if (binary := _binary()) is None:
            raise NotPossible(MISSING)
        ini = self.folder / "pgbouncer.ini"
        ini.write_text(self._ini())
        self._process = subprocess.Popen([binary, "--quiet", *self._as_nobody_special(), str(ini)])
        wait_until(self._answers, f"pgbouncer answers; its log is {self.folder / 'log'}")
        return self

    def _ini(self) -> str:
        return _INI.format(
            host=self._host(),
            port=self._url.port or parse_qs(self._url.query).get("port", ["5432"])[0],
            user=self._user,
            listen_port=self.port,
            folder=self.folder,
            pool_size=self._pool_size,
        )

    def _host(self) -> str:
        return self._url.hostname or parse_qs(self._url.query)["host"][0]

    def _as_nobody_special(self) -> list[str]:
        """It refuses to run as root: then it runs as whoever may open the server's socket, or as nobody."""
        if os.geteuid() != 0:
            return []
        host = Path(self._host())
        user = host.owner() if host.is_absolute() else "nobody"
        shutil.chown(self.folder, user)
        return [f"--user={user}"]

    def _answers(self) -> bool:
        try:
            psycopg2.connect(self.url(), connect_timeout=5).close()
        except psycopg2.OperationalError:
            if self._process and self._process.poll() is not None:
                raise NotPossible(f"pgbouncer ended at once; its log is {self.folder / 'log'}") from None
            return False
        return True

    def stop(self, how: Signals = Signals.SIGTERM) -> None:
        """End it, and with it every connection on both sides."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
