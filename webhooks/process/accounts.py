"""Who may use the dashboard: names and roles, with passwords and tokens of which only hashes are kept."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

# 32 MiB and a tenth of a second for each try: what a login can wait for, and a thief of the setting cannot.
_LOG_N, _R, _P = 15, 8, 1
_MOST_LOG_N, _MOST_R, _MOST_P = 20, 16, 4
_MEMORY = 2  # times what the parameters need, since OpenSSL counts a little more

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.@-]{0,63}", re.ASCII)
_SCRYPT = re.compile(r"scrypt\.(\d+)\.(\d+)\.(\d+)\.([A-Za-z0-9_-]{16,})\.([A-Za-z0-9_-]{32,})", re.ASCII)
_SHA256 = re.compile(r"sha256\.[0-9a-f]{64}", re.ASCII)

SHORTEST_PASSWORD = 12
_TOKEN = "whd_"  # noqa: S105 - how a token begins, so that one which got out is recognised


class Rights(StrEnum):
    """What an operator may do on the dashboard: the role."""

    LOOK = "look"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Account:
    """One operator; `hashes` are of a password, of tokens, or of both."""

    name: str
    role: Rights
    hashes: tuple[str, ...] = field(repr=False)

    @property
    def may_act(self) -> bool:
        """Whether more than looking is allowed."""
        return self.role is Rights.ACT

    @property
    def mark(self) -> str:
        """What sessions of this operator carry: another one once name, role, password or tokens change."""
        return hashlib.sha256("\0".join((self.name, self.role, *self.hashes)).encode()).hexdigest()[:16]

    def knows(self, password: str) -> bool:
        """Whether this is the operator's password; takes a tenth of a second."""
        return any(_fits(password, each) for each in self.hashes if _SCRYPT.fullmatch(each))


def read_accounts(text: str) -> Sequence[Account]:
    """Read `name:role:hash…`, several with commas between them. Raises ValueError, which quotes no hash."""
    found = [_account(number, entry) for number, entry in enumerate(_entries(text), 1)]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is named twice: give one entry all hashes of an operator")
    return found


def hash_password(password: str) -> str:
    """Return a slow hash of a password, with a salt of its own. Raises ValueError for one that is too short."""
    if len(password) < SHORTEST_PASSWORD:
        raise ValueError(f"a password has {SHORTEST_PASSWORD} characters or more")
    salt = secrets.token_bytes(16)
    key = _scrypt(password, salt, _LOG_N, _R, _P)
    return ".".join(("scrypt", str(_LOG_N), str(_R), str(_P), _written(salt), _written(key)))


def new_token() -> str:
    """Make a token of 256 bits."""
    return _TOKEN + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Return a hash of a token: a quick one, since nobody guesses 256 bits."""
    return f"sha256.{hashlib.sha256(token.encode()).hexdigest()}"


def by_password(accounts: Sequence[Account], name: str, password: str) -> Account | None:
    """Return who logs in. An unknown name takes as long as a known one, so that names cannot be told apart."""
    found = next((each for each in accounts if each.name == name), None)
    if found is None or not any(_SCRYPT.fullmatch(each) for each in found.hashes):
        _scrypt(password, b"nobody", _LOG_N, _R, _P)
        return None
    return found if found.knows(password) else None


def by_token(accounts: Sequence[Account], token: str) -> Account | None:
    """Return whose token this is."""
    wanted = hash_token(token)
    known = [account for account in accounts for each in account.hashes if hmac.compare_digest(each, wanted)]
    return known[0] if known else None


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.replace("\n", ",").split(",") if entry.strip()]


def _account(number: int, entry: str) -> Account:
    name, *others = entry.split(":")
    if not _NAME.fullmatch(name) or len(others) < 2:  # noqa: PLR2004 - a role and a hash
        raise ValueError(f"operator {number} is not written name:role:hash, such as anna:look:scrypt.15.8.1.…")
    role, *hashes = others
    if role not in list(Rights):
        raise ValueError(f"the role of {name} is not one of {', '.join(Rights)}")
    for position, each in enumerate(hashes, 1):
        if not _is_hash(each):
            raise ValueError(f"hash {position} of {name} is none; make one with: webhooks dashboard hash")
    return Account(name, Rights(role), tuple(hashes))


def _is_hash(text: str) -> bool:
    if _SHA256.fullmatch(text):
        return True
    found = _SCRYPT.fullmatch(text)
    if found is None:
        return False
    log_n, r, p = (int(found[place]) for place in (1, 2, 3))
    # A cost that a login cannot pay would lock out, and one without bounds would take the machine's memory.
    return 1 <= log_n <= _MOST_LOG_N and 1 <= r <= _MOST_R and 1 <= p <= _MOST_P


def _fits(password: str, written: str) -> bool:
    _, log_n, r, p, salt, key = written.split(".")
    made = _scrypt(password, _read(salt), int(log_n), int(r), int(p))
    return hmac.compare_digest(made, _read(key))


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    memory = _MEMORY * 128 * r * (2**log_n + p)
    return hashlib.scrypt(password.encode(), salt=salt, n=2**log_n, r=r, p=p, maxmem=memory, dklen=32)


def _written(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _read(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
