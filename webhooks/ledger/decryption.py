"""Endpoints' secrets, decrypted: once for the many deliveries of a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from cryptography.fernet import MultiFernet

_KEPT_S = 5.0
_MOST = 10_000


class Decryption:
    """Decrypts, and remembers for a few seconds what came of it. Safe to share between threads.

    It goes by the encrypted bytes themselves, so that a rotated or changed secret is another one at once.
    """

    def __init__(self, cipher: MultiFernet, *, now: Callable[[], float] = time.monotonic) -> None:
        self._cipher = cipher
        self._now = now
        self._kept: dict[bytes, tuple[float, str]] = {}
        self._forget_at = 0.0

    def decrypted(self, token: bytes) -> str:
        """Return what was encrypted. Raises InvalidToken where no key fits."""
        now = self._now()
        kept = self._kept.get(token)
        if kept is not None and kept[0] > now:
            return kept[1]
        secret = self._cipher.decrypt(token).decode()
        if now >= self._forget_at or len(self._kept) >= _MOST:
            self._kept = {}  # whatever is old, and the rest with it: each costs one decryption
            self._forget_at = now + _KEPT_S
        self._kept[token] = (self._forget_at, secret)
        return secret
