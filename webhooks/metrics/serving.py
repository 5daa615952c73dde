"""The port on which a process serves its metrics."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Sequence
from socketserver import TCPServer, ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.registry import CollectorRegistry

_PATIENCE_S = 5.0  # with whoever asks and says nothing


class _Port(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind, and ask no resolver for the address's name, as the server below would: it may be slow to answer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _SixPort(_Port):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Leave the log to what happens to deliveries."""


def serve(registry: CollectorRegistry, address: str, ports: Sequence[int]) -> int:
    """Serve metrics on the first free port, in a thread that ends with the process; returns it.

    Raises OSError, in a text for a person, where there is none.
    """
    for port in ports:
        try:
            server = _listening(registry, address, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise OSError(f"{address} port {port}: {error.strerror or error}") from error
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        return port
    which = f"port {ports[0]} is" if len(ports) == 1 else f"the ports {ports[0]} to {ports[-1]} are all"
    raise OSError(f"{which} taken on {address}; choose another by WEBHOOKS_METRICS_PORT, or a longer range")


def _listening(registry: CollectorRegistry, address: str, port: int) -> WSGIServer:
    server_class = _SixPort if ":" in address else _Port
    return make_server(address, port, make_wsgi_app(registry), server_class, _Quiet)
