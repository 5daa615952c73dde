"""Everything that a Redis database holds, as texts: what a message carries as base64 is told in clear as well."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from redis import Redis

_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def texts_in(redis_url: str) -> Iterator[str]:
    """Yield every key and value, and in clear whatever in them is base64."""
    with Redis.from_url(redis_url, decode_responses=True, encoding_errors="replace") as client:
        for key in client.scan_iter(count=1000):
            yield key
            for value in _values(client, key):
                yield from in_clear(value)


def in_clear(text: str) -> Iterator[str]:
    """Yield a text, and every piece of it that is base64 of some text."""
    yield text
    for found in _BASE64.findall(text):
        try:
            yield base64.b64decode(found, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue


def _values(client: Any, key: str) -> list[str]:
    match client.type(key):
        case "string":
            found = [client.get(key)]
        case "list":
            found = client.lrange(key, 0, -1)
        case "set":
            found = client.smembers(key)
        case "zset":
            found = [member for member, _ in client.zscan_iter(key)]
        case "hash":
            found = [text for pair in client.hscan_iter(key) for text in pair]
        case "none":
            found = []
        case other:
            raise AssertionError(f"a {other} in Redis: {key}")
    return [value for value in found if value is not None]
