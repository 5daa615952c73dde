"""Which headers of its own an endpoint may have: whatever neither HTTP nor our request speaks with already.

A value may be a secret (`Authorization`), so no error quotes one, nor a name that is none: the two may have been mixed
up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from webhooks.errors import InvalidHeader

MOST_HEADERS = 20
MAX_NAME = 64
MAX_VALUE = 1024

_MARKS = "!#$%&'*+-.^_`|~"  # what a name may have besides letters and digits (RFC 9110)

_OURS = ("accept", "date", "user-agent")
_OF_THE_CONNECTION = ("connection", "expect", "host", "http2-settings", "keep-alive", "te", "trailer", "upgrade")
_OF_WHAT_WE_DO_NOT_DO = ("accept-encoding", "cookie", "cookie2", "proxy")  # `Proxy`: CGI would read it as HTTP_PROXY
FORBIDDEN = frozenset((*_OURS, *_OF_THE_CONNECTION, *_OF_WHAT_WE_DO_NOT_DO))
FORBIDDEN_BEGINNINGS = ("content-", "proxy-", "transfer-", "webhook-", "x-webhook-")


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return an endpoint's own headers as they may be sent; `InvalidHeader` says what is wrong with which one."""
    check_names(tuple(headers))
    for name, value in headers.items():
        check_value(name, value)
    return dict(headers)


def check_names(names: tuple[str, ...]) -> None:
    """Raise `InvalidHeader` where an endpoint may not have headers of these names together."""
    check_number(names)
    for name in names:
        _check_name(name)
    twice = _first_twice(names)
    if twice is not None:
        raise InvalidHeader(f"header {twice}: is given twice")


def check_number(names: Collection[str]) -> None:
    """Raise `InvalidHeader` where an endpoint would have too many."""
    if len(names) > MOST_HEADERS:
        raise InvalidHeader(f"headers: at most {MOST_HEADERS}, not {len(names)}")


def checked_header(name: str, value: str) -> tuple[str, str]:
    """Return the two as they may be sent; `InvalidHeader` says what is wrong, and never quotes the value."""
    _check_name(name)
    check_value(name, value)
    return name, value


def _check_name(name: str) -> None:
    if not name or not name.isascii() or not all(each.isalnum() or each in _MARKS for each in name):
        raise InvalidHeader("header: a name is made of letters, digits and hyphens, without blank or colon")
    if len(name) > MAX_NAME:
        raise InvalidHeader(f"header: a name has at most {MAX_NAME} characters")
    if _is_forbidden(name):
        raise InvalidHeader(f"header {name}: is not an endpoint's to set")


def check_value(name: str, value: str) -> None:
    """Raise `InvalidHeader` where the header of this name may not have this value, without quoting it."""
    if not value:
        raise InvalidHeader(f"header {name}: the value is empty")
    if len(value) > MAX_VALUE:
        raise InvalidHeader(f"header {name}: the value has more than {MAX_VALUE} characters")
    if not value.isascii() or not value.isprintable():
        raise InvalidHeader(f"header {name}: the value has a character that is not printable ASCII")
    if value != value.strip():
        raise InvalidHeader(f"header {name}: the value begins or ends with a blank")


def _is_forbidden(name: str) -> bool:
    read = as_read(name)
    return read in FORBIDDEN or read.startswith(FORBIDDEN_BEGINNINGS)


def as_read(name: str) -> str:
    """Fold what receivers fold: CGI and WSGI read `x_webhook_id` and `X.Webhook.Id` as they read `X-Webhook-Id`."""
    return "".join(each if each.isalnum() else "-" for each in name.lower())


def _first_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if as_read(name) in seen:
            return name
        seen.add(as_read(name))
    return None
