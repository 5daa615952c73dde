"""`merchant set`: what it refuses, what it moves, and that nothing is lost when a later step fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.command import done, refused, run
from tests.courier import accept
from tests.integration.test_breaker import pause
from tests.system import SECRET, System
from webhooks import parts
from webhooks.model import Changes, HeldFor

URL = "https://acme.example/hook"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["acme", "--url", "", "--secret", "x"], "url: is empty"),
        (["acme", "--url", "https://bücher.example/hook"], "in its xn-- form, xn--bcher-kva.example"),
        (["acme", "--url", "https://xn--zz.example/hook"], "no valid punycode"),
        (["acme", "--url", "https://acme.example/日本"], "a character that a URL must not contain"),
        (["acme", "--url", "", "--no-url"], "exclude each other"),
        (["acme", "--url", URL, "--secret", ""], "the secret is empty"),
        (["acme", "--secret", "", "--generate-secret"], "exclude each other"),
        (["typo", "--no-url"], "no merchant typo"),
        (["typo", "--standard-headers"], "no merchant typo"),
        (["typo", "--no-url", "--no-standard-headers"], "no merchant typo"),
        (["", "--generate-secret"], "merchant_id: must be a non-empty string"),
        (["acme ", "--url", URL, "--generate-secret"], "merchant_id: begins or ends with white space"),
        (["cafe\u0301", "--generate-secret"], "merchant_id: is not in Unicode's composed form"),
        (["m" * 201, "--generate-secret"], "merchant_id: must be at most 200 printable characters"),
        (["ac\x1bme", "--generate-secret"], "merchant_id: must be at most 200 printable characters"),
    ],
)
def test_mistakes_change_nothing(system: System, arguments: Sequence[str], why: str) -> None:
    """One line says what is wrong; nobody is registered, and nobody changed."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    before = system.sql("SELECT * FROM endpoints")
    assert why in refused("merchant", "set", *arguments)
    assert system.sql("SELECT * FROM endpoints") == before
    assert done("audit") == []


@pytest.mark.usefixtures("system")
def test_an_address_is_taken_away_with_whatever_else_is_set() -> None:
    """`--no-url` goes with a new secret and with the headers; alone it needs a merchant that is there."""
    done("merchant", "set", "acme", "--url", URL, "--generate-secret")
    changed = done("merchant", "set", "acme", "--no-url", "--standard-headers")
    assert (changed["url"], changed["has_secret"], changed["standard_headers"]) == (None, True, True)
    added = done("merchant", "set", "other", "--no-url", "--secret", "-", stdin="a secret\n")
    assert (added["url"], added["has_secret"]) == (None, True)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(("url", "state"), [(URL, "paused"), (f"{URL}/new", "working")])
def test_only_a_new_address_starts_the_breaker_afresh(url: str, state: str) -> None:
    """The address that stands already says nothing about whether the merchant is back."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    pause(parts.gate(), "acme")
    done("merchant", "set", "acme", "--url", url)
    assert parts.gate().show("acme").state == state


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    "command",
    [
        ["merchant", "show"],
        ["merchant", "pause"],
        ["merchant", "resume"],
        ["merchant", "rotate-secret"],
        ["breaker", "show"],
        ["breaker", "reset"],
        ["delivery", "list", "--merchant"],
    ],
    ids=" ".join,
)
def test_a_name_that_only_looks_like_a_merchants_is_refused_everywhere(command: Sequence[str]) -> None:
    """No command does something to, or tells something of, a twin that nobody can see."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    assert "merchant_id: begins or ends with white space" in refused(*command, " acme")


@pytest.mark.usefixtures("system")
def test_merchants_that_hold_deliveries_and_are_not_registered_are_named() -> None:
    """A mistyped id is seen in the list, and its `show` says how many deliveries wait."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    for _ in range(2):
        message = accept({"type": "refund.completed", "merchant_id": "acmee"})
        parts.ledger().hold(message, HeldFor.ADDRESS)
    assert run("merchant", "list").stdout.endswith("not registered, though deliveries are held for them: acmee\n")
    listed = done("merchant", "list")
    assert [(item["id"], item["url"], item["registered"]) for item in listed] == [
        ("acme", URL, True),
        ("acmee", None, False),
    ]
    assert "no merchant acmee, and 2 of its deliveries are held; register it with" in refused(
        "merchant", "show", "acmee"
    )
