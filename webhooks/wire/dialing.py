"""Opening a connection: resolve once, check every address, connect to a checked one, TLS against the host's name."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv6Address
from urllib.parse import unquote, urlsplit

from urllib3.util import make_headers

from webhooks.errors import LocalFault, SettingsError
from webhooks.process.watchdog import Watchdog
from webhooks.wire.addresses import Address, AddressGuard, Target
from webhooks.wire.answer import StrictResponse
from webhooks.wire.connection import Connection, Key
from webhooks.wire.deadline import Deadline, Phase
from webhooks.wire.resolver import Names
from webhooks.wire.sessions import Sessions

LOCAL_ERRNOS = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.EADDRNOTAVAIL,
        errno.EAFNOSUPPORT,
        errno.EACCES,
        errno.EPERM,
        errno.ENETDOWN,
    }
)
"""Failures of a socket call that say something about this machine and nothing about the merchant."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """An outgoing HTTP proxy; `authorization` are the headers that its CONNECT needs."""

    host: str
    port: int
    authorization: dict[str, str]

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Read `http://[user:password@]host[:port]`; `SettingsError`, which shows no password, for anything else."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme != "http" or parts.path not in {"", "/"}:
            raise SettingsError("the proxy must be given as http://[user:password@]host[:port]")
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
        return cls(host, port or 3128, {str(k): str(v) for k, v in make_headers(proxy_basic_auth=user).items()})


@dataclass(frozen=True, slots=True)
class Dialer:
    """Opens connections for many threads."""

    resolver: Names
    guard: AddressGuard
    tls: ssl.SSLContext
    watchdog: Watchdog
    sessions: Sessions
    proxy: Proxy | None = None

    def open(self, target: Target, deadline: Deadline) -> Connection:
        """Return a connection that is ready for a request.

        `InvalidAddress` when the guard refuses, `LocalFault` when this machine or its proxy cannot, else whatever the
        socket or TLS raised.
        """
        addresses = self._addresses(target, deadline)
        key = (target.scheme, target.host, target.port)
        offered = self.sessions.offer(key)
        try:
            return self._open(key, target, addresses, deadline, offered)
        except OSError:
            if offered is None or deadline.phase is not Phase.TLS:
                raise
            # Nothing was sent, and what failed may be what we have tried to resume: once more, as with a stranger.
            self.sessions.forget(key)
            return self._open(key, target, addresses, deadline, None)

    def _open(
        self, key: Key, target: Target, addresses: Sequence[Address], deadline: Deadline, offered: ssl.SSLSession | None
    ) -> Connection:
        sock = self._dial_proxy(self.proxy, deadline) if self.proxy else _dial(addresses, target.port, deadline)
        try:
            with self.watchdog.watch(sock, deadline):
                if self.proxy is not None:
                    _tunnel(sock, self.proxy, addresses[0], target.port, deadline)
                if target.scheme == "https":
                    sock.settimeout(deadline.enter(Phase.TLS))
                    # Without an explicit handshake, a socket that was reset by now would come back unencrypted.
                    sock = secured = self.tls.wrap_socket(
                        sock,
                        server_hostname=target.host,
                        do_handshake_on_connect=False,
                        session=offered,
                    )
                    secured.do_handshake()
        except BaseException:
            sock.close()
            raise
        return Connection(key, sock, self.watchdog.vigil(sock), offered=offered is not None)

    def _addresses(self, target: Target, deadline: Deadline) -> list[Address]:
        if target.address is not None:
            return [self.guard.check(target.address)]
        return self.guard.check_all(self.resolver.lookup(target.host, deadline))

    def _dial_proxy(self, proxy: Proxy, deadline: Deadline) -> socket.socket:
        anything = AddressGuard(allow_private=True)
        try:
            addresses = anything.check_all(self.resolver.lookup(proxy.host, deadline))
            return _dial(addresses, proxy.port, deadline)
        except OSError:
            raise LocalFault("proxy: cannot be reached") from None


def _dial(addresses: Sequence[Address], port: int, deadline: Deadline) -> socket.socket:
    """Try the addresses in turn, each with an equal share of the time that is left."""
    failures: list[OSError] = []
    for tried, address in enumerate(addresses):
        share = deadline.enter(Phase.CONNECT) / (len(addresses) - tried)
        try:
            return _connect(address, port, share)
        except OSError as error:
            failures.append(error)
    raise _most_telling(failures, addresses)


def _connect(address: Address, port: int, seconds: float) -> socket.socket:
    sock = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect((str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


def _most_telling(failures: Sequence[OSError], addresses: Sequence[Address]) -> Exception:
    """Return the failure that speaks of the merchant, if one does."""
    for error, address in zip(failures, addresses, strict=True):
        if error.errno == errno.ENETUNREACH and not _has_route(address):
            continue
        if error.errno not in LOCAL_ERRNOS:
            return error
    if all(error.errno == errno.ENETUNREACH for error in failures):
        return LocalFault("network: this machine has no route to the address")
    return failures[-1]


def _has_route(address: Address) -> bool:
    """Ask the routing table; connecting a datagram socket sends nothing."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
    return True


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET


def _tunnel(sock: socket.socket, proxy: Proxy, address: Address, port: int, deadline: Deadline) -> None:
    """Have the proxy connect to the checked address: given the name, it would look it up again, unguarded."""
    host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
    lines += [f"{name}: {value}" for name, value in proxy.authorization.items()]
    sock.settimeout(deadline.enter(Phase.CONNECT))
    sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    answer = StrictResponse(sock.recv)
    try:
        answer.begin()
    except http.client.HTTPException:
        raise LocalFault("proxy: closed, or answered nonsense") from None
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise OSError(errno.EHOSTUNREACH, "the proxy could not reach the address")
    if answer.status != HTTPStatus.OK:
        raise LocalFault(f"proxy: answered {answer.status}")
