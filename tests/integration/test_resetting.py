"""`breaker reset` and `breaker show`: for merchants that somebody has heard of, with the numbers that are true."""

from __future__ import annotations

import pytest

from tests.command import done, refused, run
from tests.courier import accept
from tests.integration.test_breaker import pause
from tests.system import SECRET, System
from webhooks import parts
from webhooks.model import NO_LIMITS, Changes, HeldFor

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}
URL = "https://acme.example/hook"


def hold(system: System, *whys: HeldFor) -> None:
    """Have a delivery held for each of these."""
    for why in whys:
        message = accept(EVENT)
        system.sql(
            "UPDATE deliveries SET state = 'held', held_for = :why, sweep_at = NULL WHERE id = :id",
            why=why,
            id=message.id,
        )


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("word", ["reset", "show"])
def test_a_merchant_nobody_has_heard_of_is_refused(word: str) -> None:
    """A typo is one line, and no line of the audit."""
    assert "no merchant nosuch" in refused("breaker", word, "nosuch")
    assert done("audit") == []


def test_a_merchant_that_is_not_registered_yet_has_a_breaker(system: System) -> None:
    """Its deliveries are held for an address, and a reset lets none of them go."""
    hold(system, HeldFor.ADDRESS)
    assert done("breaker", "show", "acme")["held"] == 1
    assert run("breaker", "reset", "acme").stdout == (
        "acme: working; 0 held deliveries are being released; 1 stay held for address\n"
    )


def test_a_reset_counts_what_goes(system: System) -> None:
    """Whatever they were held for, all go once the merchant has an address and nobody pauses it."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    pause(parts.gate(), "acme")
    hold(system, HeldFor.BREAKER, HeldFor.BREAKER, HeldFor.OPERATOR)
    assert parts.backlog().held_endpoints().limits == {"acme": NO_LIMITS}
    assert run("breaker", "reset", "acme").stdout == "acme: working; 3 held deliveries are being released\n"


def test_a_reset_releases_nothing_of_a_paused_merchant(system: System) -> None:
    """An operator's pause keeps what the breaker held as well."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    hold(system, HeldFor.BREAKER, HeldFor.OPERATOR)
    parts.endpoints().pause("acme", paused=True)
    assert parts.backlog().held_endpoints().limits == {}
    assert run("breaker", "reset", "acme").stdout == (
        "acme: working; 0 held deliveries are being released; 2 stay held for operator\n"
    )
    told = done("breaker", "reset", "acme")
    assert (told["held"], told["released"], told["stay_for"]) == (2, 0, "operator")
