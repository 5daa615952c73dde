"""Sending: one POST to a stranger, and what came of it as a value. The only door to requests and urllib3.

Rules: "The request" and "What an answer means". Whatever the merchant's name server, address, TLS or answer does, the
call ends by the deadline, with bounded memory, and leaves the next one unharmed.
"""

from __future__ import annotations

import contextlib
import re
import resource
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from webhooks.errors import InvalidAddress, LocalFault
from webhooks.model import Answer, Refusal, Silence
from webhooks.process.watchdog import Watchdog
from webhooks.wire.adapter import KEPT_BODY, GuardedAdapter
from webhooks.wire.addresses import MAX_HOST, AddressGuard, Network, Target
from webhooks.wire.answer import StrictResponse
from webhooks.wire.causes import explain
from webhooks.wire.connection import IdleConnections
from webhooks.wire.deadline import Deadline
from webhooks.wire.dialing import Dialer, Proxy
from webhooks.wire.prepared import Prepared, prepare
from webhooks.wire.resolver import Resolve, Resolver, system_resolve
from webhooks.wire.sessions import Sessions
from webhooks.wire.tracing import Traced, TracedDeadline, TracedNames

PREPARED = 4096
"""URLs whose requests are kept prepared, and hosts whose TLS sessions are kept."""

MAX_RETRY_AFTER = 128
REDIRECTION = 3
TWICE = 2

_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class SendingRules:
    """What may be sent to, through what, and for how long. The defaults are the product's.

    `ca_bundle` is a PEM file used in place of requests' own bundle, `proxy_url` an `http://` proxy that every
    connection goes through. `known_name` is looked up only to tell a broken resolver of ours from a merchant's.
    `body_time` is how long an answer's body may go on after the headers for its connection to be kept, `idle_time` a
    little less than the minute after which load balancers close. Of `idle_connections` fewer are kept where the process
    may not open four times as many descriptors. `session_time` is how long a check of a certificate counts for TLS
    sessions that are resumed.
    """

    deadline: timedelta = timedelta(seconds=10)
    body_time: timedelta = timedelta(seconds=1)
    allow_http: bool = False
    allow_private_addresses: bool = False
    allowed_networks: tuple[Network, ...] = ()
    ca_bundle: Path | None = None
    proxy_url: str | None = None
    idle_connections: int = 2000
    idle_connections_per_host: int = 8
    idle_time: timedelta = timedelta(seconds=55)
    connection_age: timedelta = timedelta(minutes=5)
    session_time: timedelta = timedelta(hours=1)
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
            total=min(rules.idle_connections, _descriptors() // 4),
            per_host=rules.idle_connections_per_host,
            idle=rules.idle_time,
            age=rules.connection_age,
        )
        self._dialer = Dialer(
            resolver=Resolver(resolve, at_once=rules.lookups_at_once, known_name=rules.known_name),
            guard=rules.guard,
            tls=_tls(rules.ca_bundle),
            watchdog=self._watchdog,
            sessions=Sessions(most=PREPARED, longest=rules.session_time),
            proxy=Proxy.parse(rules.proxy_url) if rules.proxy_url else None,
        )
        self._adapter = GuardedAdapter(self._dialer, self._idle, rules.body_time)
        # The rules stay the same as long as the process runs, so what they say of a URL does, too.
        self._prepared = lru_cache(PREPARED)(partial(prepare, allow_http=rules.allow_http, guard=rules.guard))

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer | Silence | Refusal:
        """POST the body and return what the merchant answered, or why there is no answer.

        The URL's path and query go out as they are, and so do `headers`, besides `Host`, `Content-Length`,
        `Accept-Encoding: identity` and, where they are missing, `Content-Type: application/json` and `User-Agent`. No
        redirect is followed, no cookie kept. `LocalFault`, and nothing else, is raised: for what this machine or this
        program could not do, and only while no request has gone out whole.
        """
        return self._post(self._adapter, url, headers, body, Deadline(self._rules.deadline))

    def traced(self, url: str, headers: Mapping[str, str], body: bytes) -> Traced:
        """POST as `post` does, all of it anew and nothing kept, and return with the answer where the time went."""
        target = self._target(url)
        deadline = TracedDeadline(self._rules.deadline)
        names = TracedNames(self._dialer.resolver, target.host if target else None)
        dialer = replace(self._dialer, resolver=names, sessions=Sessions(most=1, longest=timedelta()))
        kept = IdleConnections(total=0, per_host=1, idle=timedelta(), age=timedelta())
        result = self._post(GuardedAdapter(dialer, kept, self._rules.body_time), url, headers, body, deadline)
        return Traced(result, target, names.addresses, deadline.phases())

    def _target(self, url: str) -> Target | None:
        with contextlib.suppress(InvalidAddress):  # sending says so, too
            return self._prepared(url).target
        return None

    def _post(
        self, adapter: GuardedAdapter, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline
    ) -> Answer | Silence | Refusal:
        try:
            result: Answer | Silence | Refusal = self._send(adapter, self._prepared(url), headers, body, deadline)
        except Exception as error:
            result = explain(error, deadline)
        if isinstance(result, Refusal) or deadline.sent < TWICE:
            return result
        return replace(result, resent=True, stale_status=deadline.stale_status)

    def close(self) -> None:
        """Close the idle connections; attempts in flight end as they would."""
        self._idle.close()
        self._watchdog.close()

    @staticmethod
    def _send(
        adapter: GuardedAdapter, prepared: Prepared, headers: Mapping[str, str], body: bytes, deadline: Deadline
    ) -> Answer:
        answer, beginning = adapter.send(prepared, prepared.head(headers, body), body, deadline)
        return _answer(answer, beginning, prepared.target)


def _descriptors() -> int:
    """Return how many descriptors this process may open."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most


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


def _answer(answer: StrictResponse, beginning: bytes, target: Target) -> Answer:
    retry_after, date = answer.headers.get("retry-after"), answer.headers.get("date")
    return Answer(
        status=answer.status,
        retry_after=_clean(retry_after)[:MAX_RETRY_AFTER] if retry_after is not None else None,
        date=_clean(date)[:MAX_RETRY_AFTER] if retry_after is not None and date is not None else None,
        redirect_host=_redirect_host(answer, target) if answer.status // 100 == REDIRECTION else None,
        excerpt=_excerpt(answer, beginning),
    )


def _redirect_host(answer: StrictResponse, target: Target) -> str | None:
    """Return the host that `Location` names; the merchant's own when it names only a path."""
    location = answer.headers.get("location", "")
    try:
        host = urlsplit(location).hostname or (target.host if location else None)
    except ValueError:
        return None
    return _clean(host)[:MAX_HOST] or None if host else None


def _excerpt(answer: StrictResponse, beginning: bytes) -> str:
    """Return the body's beginning as one line of printable text, at most 2 KiB in UTF-8. Nothing is decompressed."""
    encoding = _clean(answer.headers.get("content-encoding", "")).lower()
    if encoding not in {"", "identity"}:
        return f"({encoding[:32]}, not decompressed)"
    text = _clean(beginning.decode("utf-8", errors="replace"))
    return text.encode()[:KEPT_BODY].decode("utf-8", errors="ignore")


def _clean(text: str) -> str:
    """Keep what can be printed: no control characters, no direction marks, nothing that a log or column chokes on."""
    spaced = _SPACES.sub(" ", text)
    return (spaced if spaced.isprintable() else "".join(each for each in spaced if each.isprintable())).strip()
