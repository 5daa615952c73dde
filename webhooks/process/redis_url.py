"""What a Redis URL means, for every client alike: kombu and redis-py would each read its parameters in their own way.

    rediss://user:p%40ss@redis.example:6380/2?ssl_ca_certs=/etc/redis-ca.pem

With `rediss` the certificate is verified unless the URL says otherwise. A parameter that is not known is refused: one
client would ignore it, and the other use it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

_PORT = 6379


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """`plain` is the URL without parameters, written so that no client can misread it.

    `tls` is what both clients take by these names beside it; without TLS it is empty.
    """

    plain: str = field(repr=False)
    tls: Mapping[str, Any]

    def check_files(self) -> None:
        """Raise ValueError unless the files that `tls` names can be used."""
        if authority := self.tls.get("ssl_ca_certs"):
            _usable("ssl_ca_certs", lambda: ssl.create_default_context(cafile=authority))
        if own := self.tls.get("ssl_certfile"):
            # With a password, since OpenSSL would ask the terminal for that of an encrypted key.
            context, key = ssl.create_default_context(), self.tls.get("ssl_keyfile")
            _usable("ssl_certfile, ssl_keyfile", lambda: context.load_cert_chain(own, key, password=""))


def read(url: str) -> RedisUrl:
    """Read a Redis URL. Raises ValueError with a text that repeats nothing which may be a password."""
    if not url.startswith(("redis://", "rediss://")):
        raise ValueError("it is not a Redis URL such as redis://host:6379/0")
    parts, port = _split(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    plain = f"{parts.scheme}://{_login_of(parts)}{host}:{port}/{_database_of(parts)}"
    return RedisUrl(plain, _tls_of(parts))


def _split(url: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # the port is no number, or brackets hold no address; the text would quote them
        raise unclear() from None
    # What follows the host holds no @, unless that is in a password which began further ahead.
    behind = parts.path + parts.query
    if port == 0 or not parts.hostname or parts.netloc.count("@") > 1 or "@" in behind or parts.fragment:
        raise unclear()
    return parts, port or _PORT


def unclear() -> ValueError:
    """Say what is wrong with a URL that cannot be read, telling no piece of a password."""
    return ValueError("its host or port cannot be told; in a password, @ / : # ? and % must be percent-encoded")


def _login_of(parts: SplitResult) -> str:
    user, password = (quote(unquote(part or ""), safe="") for part in (parts.username, parts.password))
    return f"{user}:{password}@" if user or password else ""


def _database_of(parts: SplitResult) -> int:
    number = parts.path.removeprefix("/") or "0"
    if not (number.isascii() and number.isdigit()):
        raise ValueError("what follows its host must be the database's number, such as /0")
    return int(number)


def _tls_of(parts: SplitResult) -> dict[str, Any]:
    given = parse_qsl(parts.query, keep_blank_values=True)
    named = dict(given)
    unknown = sorted(named.keys() - _PARAMETERS.keys())
    if unknown:
        known = ", ".join(_PARAMETERS)
        raise ValueError(f"its parameter {unknown[0]!r} is not known; known are {known}, and the database stands as /0")
    if len(named) < len(given):
        raise ValueError("it gives a parameter twice")
    if parts.scheme == "redis":
        if named:
            raise ValueError(f"its parameter {min(named)} says nothing without TLS, that is with rediss://")
        return {}
    if "ssl_keyfile" in named and "ssl_certfile" not in named:
        raise ValueError("its parameter ssl_keyfile needs an ssl_certfile")
    return {"ssl_cert_reqs": "required", **{name: _PARAMETERS[name](name, text) for name, text in named.items()}}


def _verification(name: str, text: str) -> str:
    word = text.lower().removeprefix("cert_")
    if word not in {"required", "optional", "none"}:
        raise ValueError(f"its parameter {name} must be required, optional or none")
    return word


def _truth(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"its parameter {name} must be true or false")
    return text.lower() == "true"


def _file(name: str, text: str) -> str:
    if not text:
        raise ValueError(f"its parameter {name} names no file")
    return text


_PARAMETERS: dict[str, Callable[[str, str], object]] = {
    "ssl_cert_reqs": _verification,
    "ssl_check_hostname": _truth,
    "ssl_ca_certs": _file,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
}


def _usable(names: str, load: Callable[[], object]) -> None:
    try:
        load()
    except OSError as error:  # ssl.SSLError among them
        raise ValueError(f"the file of its parameter {names} cannot be used: {error}") from None
