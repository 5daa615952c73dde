"""Sending: one POST to a stranger, and what came of it as a value. The only door to requests and urllib3.

Rules: "The request" and "What an answer means". Whatever the merchant's name server, address, TLS or answer does, the
call ends by the deadline, with bounded memory, and leaves the next one unharmed.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from webhooks.errors import LocalFault
from webhooks.model import Answer, Refusal, Silence
from webhooks.process.watchdog import Watchdog
from webhooks.wire.adapter import KEPT_BODY, GuardedAdapter
from webhooks.wire.addresses import MAX_HOST, AddressGuard, Network, check_url
from webhooks.wire.causes import explain
from webhooks.wire.connection import IdleConnections
from webhooks.wire.deadline import Deadline
from webhooks.wire.dialing import Dialer, Proxy
from webhooks.wire.request import USER_AGENT
from webhooks.wire.resolver import Resolve, Resolver, system_resolve

DEFAULT_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}
MAX_RETRY_AFTER = 128
REDIRECTION = 3
TWICE = 2

_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class SendingRules:
    """What may be sent to, through what, and for how long. The defaults are the product's.

    `ca_bundle` is a PEM file used in place of requests' own bundle, `proxy_url` an `http://` proxy that every
    connection goes through. `known_name` is looked up only to tell a broken resolver of ours from a merchant's.
    """

    deadline: timedelta = timedelta(seconds=10)
    allow_http: bool = False
    allow_private_addresses: bool = False
    allowed_networks: tuple[Network, ...] = ()
    ca_bundle: Path | None = None
    proxy_url: str | None = None
    idle_connections: int = 128
    idle_connections_per_host: int = 8
    idle_time: timedelta = timedelta(seconds=20)
    connection_age: timedelta = timedelta(minutes=5)
    lookups_at_once: int = 64
    known_name: str = "example.com"

    @property
    def guard(self) -> AddressGuard:
        """The guard that these rules ask for."""
        return AddressGuard(self.allow_private_addresses, self.allowed_networks)


class Sender:
    """Sends from many threads at once; make one per process and close it at the end.

    `LocalFault` when the CA bundle is missing or unreadable, `SettingsError` when the proxy's URL is.
    `resolve` replaces the system's resolver.
    """

    def __init__(self, rules: SendingRules, *, resolve: Resolve = system_resolve) -> None:
        self._rules = rules
        self._watchdog = Watchdog()
        self._idle = IdleConnections(
            total=rules.idle_connections,
            per_host=rules.idle_connections_per_host,
            idle=rules.idle_time,
            age=rules.connection_age,
        )
        self._dialer = Dialer(
            resolver=Resolver(resolve, at_once=rules.lookups_at_once, known_name=rules.known_name),
            guard=rules.guard,
            tls=_tls(rules.ca_bundle),
            watchdog=self._watchdog,
            proxy=Proxy.parse(rules.proxy_url) if rules.proxy_url else None,
        )
        self._of_thread = threading.local()

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer | Silence | Refusal:
        """POST the body and return what the merchant answered, or why there is no answer.

        The URL's path and query go out as they are, and so do `headers`, besides `Host`, `Content-Length`,
        `Accept-Encoding: identity` and, where they are missing, `Content-Type: application/json` and `User-Agent`. No
        redirect is followed, no cookie kept. `LocalFault`, and nothing else, is raised: for what this machine or this
        program could not do, and only while no request has gone out whole.
        """
        deadline = Deadline(self._rules.deadline)
        try:
            result: Answer | Silence | Refusal = _answer(self._send(url, headers, body, deadline))
        except Exception as error:
            result = explain(error, deadline)
        if isinstance(result, Refusal) or deadline.sent < TWICE:
            return result
        return replace(result, resent=True, stale_status=self._session(deadline)[1].stale_status)

    def close(self) -> None:
        """Close the idle connections; attempts in flight end as they would."""
        self._idle.close()
        self._watchdog.close()

    def _send(self, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> requests.Response:
        target = check_url(url, allow_http=self._rules.allow_http, guard=self._rules.guard)
        session, adapter = self._session(deadline)
        adapter.deadline = deadline
        request = session.prepare_request(requests.Request("POST", target.origin, headers=dict(headers), data=body))
        request.url = url  # set past requests, which would write path and query in its own way
        return session.send(request, allow_redirects=False, stream=False)

    def _session(self, deadline: Deadline) -> tuple[requests.Session, GuardedAdapter]:
        held: tuple[requests.Session, GuardedAdapter] | None = getattr(self._of_thread, "session", None)
        if held is None:
            adapter = GuardedAdapter(self._dialer, self._idle, deadline, allow_http=self._rules.allow_http)
            held = self._of_thread.session = (_PlainSession(adapter), adapter)
        return held


class _PlainSession(requests.Session):
    """A session without surroundings and without memory: one adapter, no environment, no cookies, no redirects."""

    def __init__(self, adapter: GuardedAdapter) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.headers.clear()
        self.headers.update(DEFAULT_HEADERS)
        self.adapters.clear()
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002
        """Look at no `Location`: even with redirects off, requests parses it, and a bad one would cost the answer."""
        return


def _tls(ca_bundle: Path | None) -> ssl.SSLContext:
    """Build the context by hand: `create_default_context` reads SSL_CERT_FILE and SSLKEYLOGFILE."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    bundle = ca_bundle or Path(DEFAULT_CA_BUNDLE_PATH)
    try:
        context.load_verify_locations(cafile=bundle)
    except OSError as error:
        raise LocalFault(f"tls: the CA bundle {bundle} cannot be used ({error.strerror or 'not PEM'})") from None
    return context


def _answer(response: requests.Response) -> Answer:
    retry_after, date = response.headers.get("Retry-After"), response.headers.get("Date")
    return Answer(
        status=response.status_code,
        retry_after=_clean(retry_after)[:MAX_RETRY_AFTER] if retry_after is not None else None,
        date=_clean(date)[:MAX_RETRY_AFTER] if retry_after is not None and date is not None else None,
        redirect_host=_redirect_host(response) if response.status_code // 100 == REDIRECTION else None,
        excerpt=_excerpt(response),
    )


def _redirect_host(response: requests.Response) -> str | None:
    """Return the host that `Location` names; the merchant's own when it names only a path."""
    location = response.headers.get("Location", "")
    try:
        host = urlsplit(location).hostname or (urlsplit(response.url).hostname if location else None)
    except ValueError:
        return None
    return _clean(host)[:MAX_HOST] or None if host else None


def _excerpt(response: requests.Response) -> str:
    """Return the body's beginning as one line of printable text, at most 2 KiB in UTF-8. Nothing is decompressed."""
    encoding = _clean(response.headers.get("Content-Encoding", "")).lower()
    if encoding not in {"", "identity"}:
        return f"({encoding[:32]}, not decompressed)"
    text = _clean(response.content.decode("utf-8", errors="replace"))
    return text.encode()[:KEPT_BODY].decode("utf-8", errors="ignore")


def _clean(text: str) -> str:
    """Keep what can be printed: no control characters, no direction marks, nothing that a log or column chokes on."""
    spaced = _SPACES.sub(" ", text)
    return "".join(each for each in spaced if each.isprintable()).strip()
