"""What a recipient answers, without what only we and it should know: it may echo our request or its own arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

_SHORTEST = 5  # of what could be a secret
_LIKE_A_TOKEN = re.compile(r"(?![a-z]*$).{8,}")
_URL = re.compile(r"[a-z]+://\S+", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s/?&=:@#,;'\"]+")
_MASK = "…"


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these: addresses' paths, or a program's arguments."""
    words = {word for secret in secrets for word in _words_of(secret)}
    words |= {unquote(word) for word in words}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, _MASK)
    return text


def _words_of(secret: str) -> Iterator[str]:
    """Yield what may be one: any word of a URL or a single word, and of a sentence or a script what no word is."""
    in_full = [secret] if len(secret.split()) == 1 else _URL.findall(secret)
    for each in in_full:
        without_scheme = each.rpartition("://")[2]
        yield from (word for word in (without_scheme, *_BETWEEN.split(without_scheme)) if len(word) >= _SHORTEST)
    yield from (word for word in _BETWEEN.split(secret) if _LIKE_A_TOKEN.fullmatch(word))
