"""What stays the same of all requests to one URL: made once by requests, and the rest put in for each attempt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import requests
from requests.structures import CaseInsensitiveDict

from webhooks.errors import LocalFault
from webhooks.wire.addresses import AddressGuard, Target, check_url
from webhooks.wire.connection import Key
from webhooks.wire.request import USER_AGENT

DEFAULT_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}

_LINES = re.compile(r"(?:[^:\s][^:\r\n]*: (?:\S[^\r\n]*)?\r\n)*")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where a URL leads, what a connection for it may be reused for, and the headers that a request has anyway."""

    target: Target
    key: Key
    headers: CaseInsensitiveDict[str]

    def head(self, own: Mapping[str, str], body: bytes) -> bytes:
        """Return the request up to the blank line; LocalFault where a header would break it.

        `own` headers replace those that a request has anyway, whatever their case; `Host` and `Content-Length` are
        ours.
        """
        headers = self.headers.copy()
        headers.update(own)
        headers["Host"], headers["Content-Length"] = self.target.host_header, str(len(body))
        return _head(self.target.path, headers)


def prepare(url: str, *, allow_http: bool, guard: AddressGuard) -> Prepared:
    """Check the URL and have requests prepare for its origin; `InvalidAddress` says which rule it breaks.

    Path and query are kept from requests, which would write them in its own way.
    """
    target = check_url(url, allow_http=allow_http, guard=guard)
    request = requests.Request("POST", target.origin, headers=DEFAULT_HEADERS).prepare()
    return Prepared(target, (target.scheme, target.host, target.port), request.headers)


def _head(path: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    # One pattern for all is linear here, and the count tells a value that holds a whole line.
    if not _LINES.fullmatch(lines) or lines.count("\n") != len(headers) or "\r" in path or "\n" in path:
        raise LocalFault("request: could not be made (a header that breaks its line)")
    try:
        return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
    except UnicodeEncodeError:
        raise LocalFault("request: could not be made (a header that is not Latin-1)") from None
