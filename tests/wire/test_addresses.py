"""The address guard: one reading of every URL, and public unicast addresses only."""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv6Address, ip_network
from urllib.parse import urlsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from urllib3.util import parse_url

from webhooks.errors import InvalidAddress
from webhooks.wire.addresses import AddressGuard, Target, check_url

REFUSED_URLS = [
    ("", "empty"),
    ("example.com", "https://"),
    ("http://example.com/", "https://"),
    ("ftp://example.com/", "https://"),
    ("javascript:alert(1)", "https://"),
    ("//example.com/", "https://"),
    ("https:/example.com", "https://"),
    ("https:example.com", "https://"),
    ("https://", "no host"),
    ("https:///path", "no host"),
    ("https://:443/", "no host"),
    ("https://user:pw@example.com/", "user name"),
    ("https://@example.com/", "user name"),
    ("https://example.com@10.0.0.1/", "user name"),
    ("https://example.com\\@10.0.0.1/", "character"),
    ("https://example.com\t/", "character"),
    (" https://example.com/", "character"),
    ("https://example.com/\n", "character"),
    ("https://example.com/\r\nX-Evil: 1", "character"),
    ("https://example.com/\x00", "character"),
    ("https://ex ample/", "character"),
    ("https://bücher.example/", "xn--bcher-kva.example"),
    ("https://Straße.example:8443/a?b", "xn--strae-oqa.example"),
    ("HTTPS://日本.example/日", "xn--wgv71a.example"),
    ("https://💩.example/", "in its xn-- form"),
    ("https://" + "ü" * 70 + ".example/", "in its xn-- form"),
    ("https://bü cher.example/", "character"),
    ("https://user@bücher.example/", "character"),
    ("https://xn--zz.example/", "punycode"),
    ("https://xn--99999999.example/", "punycode"),
    ("https://xn--a.example/", "punycode"),
    ("https://xn--abc-.example/", "not a valid name"),
    ("https://xn--.example/", "not a valid name"),
    ("https://shop.XN--ZZ.example/", "punycode"),
    ("https://example。com/", "character"),
    ("https://①②⑦.⓪.⓪.①/", "character"),
    ("https://example.com/日本", "character"),
    ("https://example.com/{x}", "character"),
    ("https://example.com/#part", "fragment"),
    ("https://example.com#@10.0.0.1/", "fragment"),
    ("https://example.com/%zz", "hex digits"),
    ("https://exa%6dple.com/", "not a valid name"),
    ("https://127.0.0.1%2f.example.com/", "not a valid name"),
    ("https://" + "a" * 64 + ".example/", "not a valid name"),
    ("https://" + ".".join(["a" * 60] * 5) + "/", "not a valid name"),
    ("https://a..b/", "not a valid name"),
    ("https://.example.com/", "not a valid name"),
    ("https://example.com./", "not a valid name"),
    ("https://-example.com/", "not a valid name"),
    ("https://*.example.com/", "not a valid name"),
    ("https://a,b/", "not a valid name"),
    ("https://[::1", "cannot be read"),
    ("https://[::1]x/", "cannot be read"),
    ("https://[fe80::1%25eth0]/", "IPv6"),
    ("https://[127.0.0.1]/", "IPv6"),
    ("https://[v1.x]/", "IPv6"),
    ("https://::1/", "no host"),
    ("https://2130706433/", "IPv4"),
    ("https://017700000001/", "IPv4"),
    ("https://0x7f.1/", "IPv4"),
    ("https://0x7f000001/", "IPv4"),
    ("https://127.1/", "IPv4"),
    ("https://127.0.0.1./", "IPv4"),
    ("https://0127.0.0.1/", "IPv4"),
    ("https://1.2.3.4.5/", "IPv4"),
    ("https://256.1.1.1/", "IPv4"),
    ("https://example.0x10/", "IPv4"),
    ("https://example.com:/", "port"),
    ("https://example.com:0/", "port"),
    ("https://example.com:0443/", "port"),
    ("https://example.com:65536/", "port"),
    ("https://host:99999/", "port"),
    ("https://example.com:+443/", "port"),
    ("https://example.com:-1/", "port"),
    ("https://example.com:4_43/", "port"),
    ("https://example.com:443:80/", "port"),
    ("https://example.com/" + "a" * 2048, "longer"),
]


@pytest.mark.parametrize(("url", "rule"), REFUSED_URLS)
def test_a_url_that_could_be_misread_is_refused_with_the_rule(url: str, rule: str) -> None:
    """The error is one short line that names the rule and quotes neither path nor query."""
    with pytest.raises(InvalidAddress) as caught:
        check_url(url, allow_http=False)
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", Target("https", "example.com", 443)),
        ("HTTPS://Example.COM/Hook?a=b&c=%20", Target("https", "example.com", 443, None, "/Hook?a=b&c=%20")),
        ("https://xn--bcher-kva.example:8443/", Target("https", "xn--bcher-kva.example", 8443)),
        ("https://xn--ls8h.example/", Target("https", "xn--ls8h.example", 443)),
        ("https://my_shop.example?token=1", Target("https", "my_shop.example", 443, None, "/?token=1")),
        ("https://8.8.8.8/", Target("https", "8.8.8.8", 443, IPv4Address("8.8.8.8"))),
        ("https://[2606:4700:0::1111]:99/", Target("https", "2606:4700::1111", 99, IPv6Address("2606:4700::1111"))),
        ("https://3com.example/", Target("https", "3com.example", 443)),
        ("https://example.com/a@b//c:1", Target("https", "example.com", 443, None, "/a@b//c:1")),
    ],
)
def test_an_ordinary_url_passes(url: str, target: Target) -> None:
    """Host in lower case, the scheme's own port where none is given, path and query untouched."""
    assert check_url(url, allow_http=False) == target


def test_plain_http_passes_only_when_allowed() -> None:
    """The switch for development lets http through and nothing else."""
    assert check_url("http://example.com/", allow_http=True) == Target("http", "example.com", 80)
    with pytest.raises(InvalidAddress):
        check_url("ftp://example.com/", allow_http=True)


def test_a_literal_is_checked_at_once_when_the_guard_is_given() -> None:
    """`merchant set` can refuse a private address before anything is sent."""
    with pytest.raises(InvalidAddress, match="private"):
        check_url("https://10.0.0.1/", allow_http=False, guard=AddressGuard())
    assert check_url("https://10.0.0.1/", allow_http=False).host == "10.0.0.1"


NASTY = st.sampled_from([*"@:/\\?#[]%.-_0x1a \t\n", "https://", "example.com", "127.0.0.1", "é", "。", "%2f", "::1"])


@given(st.one_of(st.text(max_size=40), st.lists(NASTY, max_size=12).map("".join)).map(lambda rest: "https://" + rest))
def test_every_parser_reads_an_accepted_url_alike(url: str) -> None:
    """What passes leads to the same host and port for us, urllib, urllib3 and requests; the rest is refused."""
    try:
        target = check_url(url, allow_http=False)
    except InvalidAddress:
        return
    bare = f"[{target.host}]" if ":" in target.host else target.host
    prepared = requests.Request("POST", url).prepare().url or ""
    for reading in (urlsplit(url), urlsplit(prepared)):
        assert reading.hostname is not None
        assert _same_host(reading.hostname, target.host)
        assert (reading.port or 443) == target.port
    assert _same_host(parse_url(url).host or "", bare)
    assert (parse_url(url).port or 443) == target.port


def _same_host(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one.strip("[]")) == ipaddress.ip_address(other.strip("[]"))
    except ValueError:
        return one.lower() == other


NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255", "168.63.129.16",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::808:808", "100::1", "2001::1", "2001:0:7f00:1::",
    "2001:10::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254",
    "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2600::5efe:7f00:1", "2600::200:5efe:808:808", "4000::1",
]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_unicast_is_refused(address: str) -> None:
    """In whatever embedding it comes, and named by its kind only: the number may be an inner secret of ours."""
    with pytest.raises(InvalidAddress, match="not a public one") as caught:
        AddressGuard().check(address)
    assert address not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "connected"),
    [
        ("8.8.8.8", "8.8.8.8"),
        ("192.0.1.1", "192.0.1.1"),
        ("172.32.0.1", "172.32.0.1"),
        ("2606:4700::1111", "2606:4700::1111"),
        ("::ffff:8.8.8.8", "8.8.8.8"),
        ("64:ff9b::8.8.8.8", "64:ff9b::808:808"),
    ],
)
def test_a_public_address_passes(address: str, connected: str) -> None:
    """An IPv4 address in IPv6 clothes is connected to as what it is; NAT64 of a public one is left alone."""
    assert str(AddressGuard().check(address)) == connected


def test_an_allowed_network_opens_itself_and_nothing_else() -> None:
    """The allow-list is by network, and sees through the mapped form."""
    guard = AddressGuard(allowed_networks=(ip_network("10.1.0.0/16"), ip_network("fd00::/64")))
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "8.8.8.8"):
        guard.check(address)
    for address in ("10.2.0.1", "127.0.0.1", "fd00:0:0:1::1"):
        with pytest.raises(InvalidAddress):
            guard.check(address)


def test_one_refused_address_refuses_the_name() -> None:
    """A name that leads to a public and to a private address is refused whole."""
    with pytest.raises(InvalidAddress):
        AddressGuard().check_all(["8.8.8.8", "127.0.0.1"])
    assert AddressGuard().check_all(["8.8.8.8", "8.8.8.8"]) == [IPv4Address("8.8.8.8")]


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_the_standard_library_calls_inner_never_passes(address: IPv4Address | IPv6Address) -> None:
    """A second opinion on every address: private, loopback, link-local, multicast, reserved, unspecified."""
    try:
        found = AddressGuard().check(address)
    except InvalidAddress:
        return
    inner = ("is_private", "is_loopback", "is_link_local", "is_multicast", "is_unspecified")
    assert not any(getattr(found, each) for each in inner)
