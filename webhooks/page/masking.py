"""What is shown of an endpoint: no user's name in its address, and no query, where merchants keep keys (I9)."""

from __future__ import annotations

from dataclasses import replace

from webhooks.model import Endpoint


def masked(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint as it may be shown; `?…` stands for a query."""
    return endpoint if endpoint.url is None else replace(endpoint, url=_masked(endpoint.url))


def _masked(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    place, query, _ = rest.partition("?")
    host, slash, path = place.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}{'?…' if query else ''}"
