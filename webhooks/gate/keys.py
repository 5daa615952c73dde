"""The names of a merchant's keys; they are made here and nowhere else.

    webhooks:{shop%3A7}:state       hash     where the breaker stands; absent while there is nothing to remember
    webhooks:{shop%3A7}:in_flight   zset     delivery id → when its lease ends
    webhooks:{shop%3A7}:slots       zset     slot → when it lapses
    webhooks:{shop%3A7}:window      string   the attempts of the last minutes, counted

The part in braces is the hash tag that keeps them together on one node of a Redis Cluster. It is percent-encoded, so
that braces in an id cannot end it early and no two ids share a key.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

_OPENING, _CLOSING = "webhooks:{", "}:"
_KINDS = ("state", "in_flight", "slots", "window")

ALL_STATES = f"{_OPENING}*{_CLOSING}state"


def keys_of(merchant_id: str) -> tuple[str, ...]:
    """Return the merchant's state, in-flight, slots and window keys, in the order of every script's KEYS."""
    tag = quote(merchant_id, safe="", errors="surrogatepass")
    return tuple(f"{_OPENING}{tag}{_CLOSING}{kind}" for kind in _KINDS)


def merchant_of(key: str) -> str:
    """Return the merchant that a key belongs to."""
    return unquote(key.removeprefix(_OPENING).rpartition(_CLOSING)[0], errors="surrogatepass")
