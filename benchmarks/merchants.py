"""The healthy merchants: one nginx with a port for each, whose access log says when every POST arrived."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import trustme

MISSING = "make bench needs nginx as the merchants: apt-get install nginx-light, or have nginx on PATH"
SBIN = "/usr/sbin"  # where Debian puts it, and only root's PATH leads
_FIRST, _LAST = 20_000, 32_000  # below what the kernel gives to clients
_PATIENCE = 10.0

_CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    log_format arrivals '$msec $request_time $server_port $http_x_webhook_id';
    access_log {folder}/access.log arrivals;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ssl_certificate {folder}/leaf.pem;
    ssl_certificate_key {folder}/leaf.pem;
    keepalive_timeout 120s;
    keepalive_requests 1000000;
    server {{
{listens}
        location / {{ return 200; }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A POST: when its first bytes came (seconds of the epoch), at which port, of which event."""

    at: float
    port: int
    id: str


def parse(lines: Iterable[str]) -> list[Arrival]:
    """Read nginx's access log: a request is logged at its end, `$request_time` after its first bytes.

    A line that is not whole yet, or was refused before there was a request, is left out.
    """
    found = []
    for line in lines:
        words = line.split()
        if len(words) == 4 and line.endswith("\n"):
            found.append(Arrival(float(words[0]) - float(words[1]), int(words[2]), words[3]))
    return found


def first_of_each(arrivals: Iterable[Arrival]) -> dict[str, float]:
    """Return when each event arrived first."""
    first: dict[str, float] = {}
    for arrival in arrivals:
        first[arrival.id] = min(arrival.at, first.get(arrival.id, arrival.at))
    return first


def certify(folder: Path) -> None:
    """Write `ca.pem`, which merchants are known by, and `leaf.pem`, the certificate of all of them with its key."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "leaf.pem"))


def free_ports(count: int) -> range:
    """Return so many ports in a row that are free at this moment."""
    first = _FIRST
    while first + count <= _LAST:
        taken = next((port for port in range(first, first + count) if not _is_free(port)), None)
        if taken is None:
            return range(first, first + count)
        first = taken + 1
    raise RuntimeError(f"there are no {count} free ports in a row between {_FIRST} and {_LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def found() -> str | None:
    """Return where nginx is, if it is."""
    return shutil.which("nginx") or shutil.which("nginx", path=SBIN)


class Nginx:
    """The server; leaving the `with` block ends it. `mark` and `since` say what has arrived from a moment on."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.ports = ports
        self._log = folder / "access.log"
        listens = "\n".join(f"        listen 127.0.0.1:{port} ssl backlog=512;" for port in ports)
        self._config = folder / "nginx.conf"
        self._config.write_text(_CONFIG.format(folder=folder, listens=listens))
        self._errors = folder / "error.log"
        self._process: subprocess.Popen[bytes] | None = None

    def mark(self) -> int:
        """Return where the log ends now."""
        return self._log.stat().st_size

    def since(self, mark: int) -> list[Arrival]:
        """Return what has arrived since a mark."""
        with self._log.open() as log:
            log.seek(mark)
            return parse(log)

    def __enter__(self) -> Self:
        nginx = found()
        if not nginx:
            raise RuntimeError(MISSING)
        self._process = subprocess.Popen(
            [nginx, "-e", str(self._errors), "-c", str(self._config)], start_new_session=True
        )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError(f"nginx did not start: {self._errors.read_text()[-500:]}")
            time.sleep(0.02)
        return self

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports[-1]), 1).close()
        except OSError:
            return False
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(_PATIENCE)
