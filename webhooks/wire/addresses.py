"""The address guard: which URLs may be registered, and which addresses may be connected to.

Two checks. `check_url` reads a merchant's URL by one narrow grammar and refuses the rest, so that no two parsers can
disagree on where it leads. `AddressGuard` looks at every address that a name resolves to, at sending, and refuses all
that is not public unicast. Both raise `InvalidAddress` with one line that quotes neither path nor query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import idna

from webhooks.errors import InvalidAddress

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL = 2048
MAX_HOST = 253
MAX_PORT = 65_535
DEFAULT_PORTS = {"https": 443, "http": 80}

_URI_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)
_SHAPE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>[^?]*)(?P<query>.*)")
_INTERNATIONAL = re.compile(r"https?://(?P<host>[^\s/?#@:\[\]\\%]+)(?::[0-9]*)?(?:[/?#].*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_A_LABEL = "xn--"
_JOINERS = str.maketrans("", "", "\u200c\u200d")  # invisible, and right in some scripts and emoji

# The stdlib's own opinion (`is_global`) is asked too, but it differs between Python versions; these do not.
_NOT_PUBLIC: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("loopback", ("127.0.0.0/8", "::1/128")),
    ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")),
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("multicast", ("224.0.0.0/4", "ff00::/8")),
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("documentation", ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")),
    ("tunnelled", ("192.88.99.0/24", "2002::/16", "2001::/32", "::/96")),
    # The last one is public by number, and the inside of a cloud provider's hosts by use.
    ("reserved", ("192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "2001::/23", "168.63.129.16/32")),
)
_KINDS = tuple((ip_network(text), kind) for kind, texts in _NOT_PUBLIC for text in texts)
_GLOBAL_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)


@dataclass(frozen=True, slots=True)
class Target:
    """A checked URL: where it leads. `host` is lower case and without brackets; `address` is set for a literal.

    `path` is the request target: path and query as the URL has them, byte for byte.
    """

    scheme: str
    host: str
    port: int
    address: Address | None = None
    path: str = "/"

    @property
    def host_header(self) -> str:
        """The `Host` header: the port is named only when it is not the scheme's own."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """The URL without path and query."""
        return f"{self.scheme}://{self.host_header}"


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Which addresses may be connected to: public unicast, those in `allowed_networks`, or all of them."""

    allow_private: bool = False
    allowed_networks: Sequence[Network] = ()

    def check(self, address: str | Address) -> Address:
        """Return the address to connect to; `InvalidAddress` when it must not be used.

        An IPv4 address that is merely written as IPv6 (`::ffff:…`) comes back as what it is.
        """
        try:
            found = ip_address(address)
        except ValueError:
            raise InvalidAddress("address: not an IP address") from None
        found = (isinstance(found, IPv6Address) and found.ipv4_mapped) or found
        if not self.allow_private and not any(found in network for network in self.allowed_networks):
            kind = _not_public(found)
            if kind is not None:
                raise InvalidAddress(f"address: {kind}, not a public one")
        return found

    def check_all(self, addresses: Sequence[str]) -> list[Address]:
        """Check all that a name resolved to. One that is refused refuses the name: half a trap is a trap."""
        checked = [self.check(address) for address in addresses]
        return list(dict.fromkeys(checked))


def check_url(url: str, *, allow_http: bool, guard: AddressGuard | None = None) -> Target:
    """Return where a merchant's URL leads; `InvalidAddress` says which rule it breaks.

    Only `https://host[:port][/path][?query]` in the characters of RFC 3986 passes (`http` too when allowed): no
    credentials, no fragment, no Unicode (hosts in their `xn--` form), no number as a host unless it is a plain IPv4
    or bracketed IPv6 address. What passes is a legal request target as it stands; square brackets are let through as
    browsers do, unescaped. With a `guard` a literal address is checked at once, as it will be at sending.
    """
    scheme, authority, path = _split(url)
    if scheme != "https" and not (scheme == "http" and allow_http):
        raise InvalidAddress("url: must begin with https://")
    if "@" in authority:
        raise InvalidAddress("url: must not carry a user name or password")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise InvalidAddress("url: the host cannot be read")
    host, address = _host(parts["host"])
    if address is not None and guard is not None:
        guard.check(address)
    return Target(scheme, host, _port(parts["port"], scheme), address, path)


def _split(url: str) -> tuple[str, str, str]:
    if not url:
        raise InvalidAddress("url: is empty")
    if len(url) > MAX_URL:
        raise InvalidAddress(f"url: longer than {MAX_URL} characters")
    if not _URI_CHARACTERS.fullmatch(url):
        _hint_at_a_name(url)
        raise InvalidAddress("url: has a character that a URL must not contain (space, control, backslash, non-ASCII)")
    if _BAD_ESCAPE.search(url):
        raise InvalidAddress("url: has a % that is not followed by two hex digits")
    if "#" in url:
        raise InvalidAddress("url: must not have a fragment (#)")
    shape = _SHAPE.fullmatch(url)
    if shape is None:
        raise InvalidAddress("url: must begin with https://")
    return shape["scheme"].lower(), shape["authority"], (shape["path"] or "/") + shape["query"]


def _hint_at_a_name(url: str) -> None:
    """Raise what to write instead where the host is an international name; pass over whatever else is wrong."""
    found = _INTERNATIONAL.fullmatch(url)
    if found is None or found["host"].isascii() or not found["host"].isprintable():
        return
    hint = "url: the host must be written in its xn-- form"
    try:
        name = idna.encode(found["host"], uts46=True).decode("ascii")
    except UnicodeError:
        raise InvalidAddress(hint) from None
    if _A_LABEL in name:
        raise InvalidAddress(f"{hint}, {name}")


def _host(text: str) -> tuple[str, Address | None]:
    if text.startswith("["):
        return _ipv6(text[1:-1])
    host = text.lower()
    if not host:
        raise InvalidAddress("url: has no host")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]) or (not labels[-1] and len(labels) > 1 and _NUMBER.fullmatch(labels[-2])):
        return _ipv4(host)
    if len(host) > MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidAddress("url: the host is not a valid name (labels of 1 to 63 letters, digits and hyphens)")
    if not all(_is_name(label.removeprefix(_A_LABEL)) for label in labels if label.startswith(_A_LABEL)):
        raise InvalidAddress("url: the host has an xn-- label that is no valid punycode")
    return host, None


def _is_name(punycode: str) -> bool:
    """Whether it stands for a name that needs it, in one way only. More is not asked: emoji are in use, too."""
    try:
        name = punycode.encode("ascii").decode("punycode")
        same = name.encode("punycode").decode("ascii") == punycode
    except UnicodeError:
        return False
    return same and not name.isascii() and name.translate(_JOINERS).isprintable()


def _ipv6(text: str) -> tuple[str, Address]:
    if "%" in text:
        raise InvalidAddress("url: an IPv6 address must not name a zone")
    try:
        literal = IPv6Address(text)
    except ValueError:
        raise InvalidAddress("url: the IPv6 address cannot be read") from None
    return str(literal), literal


def _ipv4(host: str) -> tuple[str, Address]:
    try:
        return host, IPv4Address(host)
    except ValueError:
        raise InvalidAddress("url: an IPv4 address must be four decimal numbers") from None


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return DEFAULT_PORTS[scheme]
    if not _PORT.fullmatch(text) or int(text) > MAX_PORT:
        raise InvalidAddress(f"url: the port must be a number from 1 to {MAX_PORT}")
    return int(text)


def _not_public(address: Address) -> str | None:
    """Say what kind of address it is when it is not public unicast."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return _not_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    for network, kind in _KINDS:
        if address in network:
            return kind
    if isinstance(address, IPv6Address):
        if address not in _GLOBAL_V6:
            return "reserved"
        if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
            return "tunnelled"
    return None if address.is_global else "reserved"
