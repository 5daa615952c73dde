"""`merchant set`: what it refuses, what it moves, and that nothing is lost when a later step fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.command import done, refused, run
from tests.integration.test_breaker import pause
from tests.system import SECRET, System
from webhooks import parts
from webhooks.errors import LedgerUnavailable
from webhooks.ledger.audit import Audit

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
        (["m" * 201, "--generate-secret"], "merchant_id: must be at most 200 printable characters"),
        (["ac\x1bme", "--generate-secret"], "merchant_id: must be at most 200 printable characters"),
    ],
)
def test_mistakes_change_nothing(system: System, arguments: Sequence[str], why: str) -> None:
    """One line says what is wrong; nobody is registered, and nobody changed."""
    parts.merchants().set("acme", url=URL, secret=SECRET)
    before = system.sql("SELECT * FROM merchants")
    assert why in refused("merchant", "set", *arguments)
    assert system.sql("SELECT * FROM merchants") == before
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
    parts.merchants().set("acme", url=URL, secret=SECRET)
    pause(parts.gate(), "acme")
    done("merchant", "set", "acme", "--url", url)
    assert parts.gate().show("acme").state == state


@pytest.fixture
def _no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger goes away right before a line is added to the audit."""

    def away(*_given: object, **_more: object) -> None:
        raise LedgerUnavailable("the ledger cannot be used: gone")

    monkeypatch.setattr(Audit, "note", away)


@pytest.mark.usefixtures("system", "_no_audit")
@pytest.mark.parametrize("command", [["set", "acme", "--generate-secret"], ["rotate-secret", "acme"]], ids=" ".join)
def test_a_secret_that_was_stored_is_printed_whatever_follows(command: Sequence[str]) -> None:
    """It counts from now on, and nobody could read it anywhere else."""
    parts.merchants().set("acme", url=URL, secret=SECRET)
    result = run("merchant", *command)
    assert (result.exit_code, result.stderr) == (1, "webhooks: the ledger cannot be used: gone\n")
    assert [line for line in result.stdout.splitlines() if line.startswith("secret ")]


@pytest.mark.usefixtures("system", "_no_audit")
def test_a_new_address_starts_the_breaker_afresh_whatever_follows() -> None:
    """Typed once more, it would be no new address."""
    parts.merchants().set("acme", url=URL, secret=SECRET)
    pause(parts.gate(), "acme")
    assert run("merchant", "set", "acme", "--url", f"{URL}/new").exit_code == 1
    assert parts.gate().show("acme").state == "working"
