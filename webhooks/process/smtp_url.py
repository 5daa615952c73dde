"""What the URL of a mail server means: `smtp://relay.example:25`, `smtps://user:p%40ss@mail.example`.

`smtps` is TLS from the first byte; `smtp` goes over to TLS where the server offers it, and must before it logs in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

_PORTS = {("smtp", False): 25, ("smtp", True): 587, ("smtps", False): 465, ("smtps", True): 465}


@dataclass(frozen=True, slots=True)
class SmtpUrl:
    """Where mail is handed over, and as whom."""

    host: str
    port: int
    tls: bool
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def read(url: str) -> SmtpUrl:
    """Read it. Raises ValueError with a text that repeats nothing which may be a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # the port is no number; the text would quote it
        raise _unclear() from None
    beside = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or beside or parts.netloc.count("@") > 1:
        raise _unclear()
    if (parts.username is None) != (parts.password is None):
        raise ValueError("a mail server asks for a user and a password, or for neither")
    user, password = (unquote(each) if each else None for each in (parts.username, parts.password))
    return SmtpUrl(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme, user is not None],
        tls=parts.scheme == "smtps",
        user=user,
        password=password,
    )


def _unclear() -> ValueError:
    return ValueError(
        "it is not a mail server's URL such as smtp://localhost or smtps://user:password@mail.example; "
        "what is special in a password stands percent-encoded"
    )
