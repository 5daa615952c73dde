"""The names of an endpoint's keys; they are made here and nowhere else.

    webhooks:{shop%3A7}:state       hash     where the breaker stands; absent while there is nothing to remember
    webhooks:{shop%3A7}:in_flight   zset     delivery id → when its lease ends
    webhooks:{shop%3A7}:slots       zset     slot → when it lapses
    webhooks:{shop%3A7}:window      string   the attempts of the last minutes, counted
    webhooks:{shop%3A7}:pace        string   how it answers, how much of its lane it has earned, its tokens

    webhooks:{}:check               string   nothing: whether Redis takes writes, as somebody has just found out

What is known of a working endpoint's pace is no part of its state: whoever looks for the endpoints whose breaker has
something to say finds few keys, however many endpoints are at work.

With a namespace, `staging` say, each begins with `staging:`. The part in braces is the hash tag that keeps them
together on one node of a Redis Cluster. It is percent-encoded, so that braces in an id cannot end it early and no two
ids share a key.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

_OPENING, _CLOSING = "webhooks:{", "}:"
_KINDS = ("state", "in_flight", "slots", "window", "pace")


def keys_of(endpoint_id: str, namespace: str = "") -> tuple[str, ...]:
    """Return the endpoint's state, in-flight, slots, window and pace keys, in the order of every script's KEYS."""
    tag = quote(endpoint_id, safe="", errors="surrogatepass")
    return tuple(f"{_start(namespace)}{tag}{_CLOSING}{kind}" for kind in _KINDS)


def check_of(namespace: str = "") -> str:
    """Return the key that is written to see whether one can be."""
    return f"{_start(namespace)}{_CLOSING}check"


def all_states(namespace: str = "") -> str:
    """Return the pattern of every endpoint's state key."""
    return f"{_start(namespace)}*{_CLOSING}state"


def endpoint_of(key: str, namespace: str = "") -> str:
    """Return the endpoint that a key belongs to."""
    return unquote(key.removeprefix(_start(namespace)).rpartition(_CLOSING)[0], errors="surrogatepass")


def _start(namespace: str) -> str:
    return f"{namespace}:{_OPENING}" if namespace else _OPENING
