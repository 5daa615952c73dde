"""Which headers of its own an endpoint may have: names, values, bounds, and that no refusal shows a value."""

from __future__ import annotations

import pytest

from webhooks.errors import InvalidHeader
from webhooks.policy.headers import MOST_HEADERS, checked_header, checked_headers

ALLOWED = [
    ("Authorization", "Bearer abc.def-ghi_jkl=="),
    ("X-Api-Key", "k"),
    ("x-tenant", 'a "quoted" value; with = signs, and a blank within'),
    ("X-WebhookId", "not one of ours"),
    ("Hosting", "neither"),
    ("n" * 64, "v" * 1024),
    ("!#$%&'*+-.^_`|~9", "odd, and a name all the same"),
]

FORBIDDEN = [
    *("Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Host", "Connection", "Keep-Alive"),
    *("Upgrade", "TE", "Trailer", "Expect", "Proxy-Authorization", "Proxy-Connection", "Proxy", "Accept-Encoding"),
    *("Accept", "Cookie", "Cookie2", "Date", "User-Agent", "HTTP2-Settings", "X-Webhook-Id", "X-Webhook-Anything"),
    *("webhook-id", "webhook-timestamp", "webhook-signature"),
]

NOT_NAMES = [
    "",
    " ",
    "X Y",
    "X-Y ",
    "X:",
    "X-Y:Z",
    "X\r\nEvil",
    "X\n",
    "X\x00",
    "X\x7f",
    "Ключ",
    "Naïve",
    "a(b)",
    '"',
    "a/b",
    "a@b",
]

NOT_VALUES = [
    ("", "is empty"),
    (" canary", "begins or ends with a blank"),
    ("canary ", "begins or ends with a blank"),
    ("canary\r\nX-Evil: 1", "not printable ASCII"),
    ("canary\nX-Evil: 1", "not printable ASCII"),
    ("canary\x00", "not printable ASCII"),
    ("canary\tb", "not printable ASCII"),
    ("canary\x7f", "not printable ASCII"),
    ("canary\x85", "not printable ASCII"),
    ("canary é", "not printable ASCII"),
    ("canary ключ", "not printable ASCII"),
    ("canary" * 171, "more than 1024 characters"),
]


@pytest.mark.parametrize(("name", "value"), ALLOWED)
def test_a_header_may_be_set(name: str, value: str) -> None:
    """It is kept as it was given."""
    assert checked_header(name, value) == (name, value)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_header_of_ours_may_not_be_set(name: str) -> None:
    """In no case of its letters, nor with the marks that receivers read as hyphens."""
    for written in (name, name.lower(), name.upper(), name.replace("-", "_"), name.replace("-", ".")):
        with pytest.raises(InvalidHeader, match=r"is not an endpoint's to set$"):
            checked_header(written, "canary")


@pytest.mark.parametrize("name", NOT_NAMES)
def test_a_name_that_is_none_is_refused_unquoted(name: str) -> None:
    """It may be the value, in the wrong place."""
    with pytest.raises(InvalidHeader, match=r"^header: a name is made of letters, digits and hyphens, ") as caught:
        checked_header(name, "v")
    assert "\n" not in str(caught.value)
    assert len(name) < 2 or name not in str(caught.value)


def test_a_name_is_bounded() -> None:
    """At 64 characters, of which none is quoted."""
    with pytest.raises(InvalidHeader, match=r"^header: a name has at most 64 characters$"):
        checked_header("n" * 65, "v")


@pytest.mark.parametrize(("value", "why"), NOT_VALUES)
def test_a_value_that_cannot_be_sent_is_refused_unquoted(value: str, why: str) -> None:
    """One line names the header and what is wrong."""
    with pytest.raises(InvalidHeader, match=why) as caught:
        checked_header("Authorization", value)
    text = str(caught.value)
    assert text.startswith("header Authorization: ")
    assert "canary" not in text
    assert "\n" not in text


def test_an_endpoint_has_so_many_headers_and_no_more() -> None:
    """Twenty, in their order; none is the default."""
    most = {f"X-{number}": str(number) for number in range(MOST_HEADERS)}
    assert list(checked_headers(most).items()) == list(most.items())
    assert checked_headers({}) == {}
    with pytest.raises(InvalidHeader, match=r"^headers: at most 20, not 21$"):
        checked_headers(most | {"X-More": "1"})


@pytest.mark.parametrize("again", ["x-key", "X_Key", "X.KEY"])
def test_no_header_is_given_twice(again: str) -> None:
    """Which one a receiver would read is anybody's guess."""
    with pytest.raises(InvalidHeader, match=f"^header {again}: is given twice$"):
        checked_headers({"X-Key": "canary", again: "canary"})


def test_one_bad_header_refuses_them_all() -> None:
    """Nothing is set by half."""
    with pytest.raises(InvalidHeader, match="header Host"):
        checked_headers({"X-Key": "1", "Host": "elsewhere.example"})
