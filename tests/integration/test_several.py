"""A merchant with several endpoints, or with named ones only, in the commands of merchants and breakers."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.command import done, refused, run
from tests.courier import accept_all
from tests.integration.test_breaker import pause
from tests.system import SECRET, System
from webhooks import parts
from webhooks.model import Changes, Endpoint, HeldFor

URL = "https://acme.example/hook"
FACTS = {field.name for field in fields(Endpoint)}


@pytest.fixture
def merchants(system: System) -> System:
    """`one` has one address, `acme` three endpoints, `named` has two and no default one."""
    for merchant_id in ("one", "acme"):
        parts.endpoints().set(merchant_id, Changes(url=f"{URL}/{merchant_id}", secret=SECRET))
    for endpoint_id, merchant_id in {"ep_a": "acme", "ep_b": "acme", "ep_n": "named", "ep_m": "named"}.items():
        parts.endpoints().add(merchant_id, endpoint_id, Changes(url=f"{URL}/{endpoint_id}", secret=SECRET))
    return system


def paused_now() -> set[str]:
    """Return the endpoints that are paused."""
    return {each["id"] for each in done("endpoint", "list") if each["paused_at"]}


@pytest.mark.usefixtures("merchants")
@pytest.mark.parametrize(
    ("merchant_id", "others"), [("one", None), ("acme", ["ep_a", "ep_b"]), ("named", ["ep_m", "ep_n"])]
)
def test_a_merchant_is_paused_and_resumed_at_all_of_its_endpoints(merchant_id: str, others: list[str] | None) -> None:
    """And at nobody else's; the audit names those that the merchant's name does not."""
    told = done("merchant", "pause", merchant_id, "--why", "their migration")
    assert (told["id"], told.get("endpoints")) == (merchant_id, others)
    assert told.keys() - {"endpoints"} == FACTS
    ids = {*(others or []), *([] if merchant_id == "named" else [merchant_id])}
    assert paused_now() == ids
    endpoints = parts.endpoints().of(merchant_id)
    assert len({each.paused_at for each in endpoints}) == 1
    more = f", with {', '.join(others)}" if others else ""
    assert [(line["what"], line["why"]) for line in done("audit")] == [
        (f"paused {merchant_id}{more}", "their migration")
    ]
    assert done("merchant", "resume", merchant_id).get("endpoints") == others
    assert paused_now() == set()
    assert done("audit")[0]["what"] == f"resumed {merchant_id}{more}"


@pytest.mark.usefixtures("merchants")
def test_merchants_are_shown_with_their_other_endpoints() -> None:
    """A merchant with one address as if there were no others anywhere; held is what all its endpoints hold."""
    messages = accept_all({"type": "kyc.x", "merchant_id": "acme"})
    parts.ledger().hold(messages["acme"], HeldFor.BREAKER)
    parts.ledger().hold(messages["ep_a"], HeldFor.LANE)
    shown = {merchant_id: done("merchant", "show", merchant_id) for merchant_id in ("one", "acme", "named")}
    assert {name: each.get("endpoints") for name, each in shown.items()} == {
        "one": None,
        "acme": ["ep_a", "ep_b"],
        "named": ["ep_m", "ep_n"],
    }
    assert shown["acme"]["held"] == {"breaker": 1, "lane": 1}
    assert (shown["acme"]["url"], shown["named"]["url"], shown["named"]["has_secret"]) == (f"{URL}/acme", None, None)
    assert shown["one"].keys() == FACTS | {"held", "failed", "breaker", "last_hour", "last_day", "last_answers"}
    lines = run("merchant", "show", "acme").stdout.splitlines()
    assert "endpoints              ep_a, ep_b" in lines
    assert "held                   1 for breaker, 1 for lane" in lines
    assert [(each["id"], each["held"]) for each in shown["acme"]["of_endpoints"]] == [
        ("acme", {"breaker": 1}),
        ("ep_a", {"lane": 1}),
        ("ep_b", {}),
    ]
    assert "endpoints" not in run("merchant", "show", "one").stdout


@pytest.mark.usefixtures("merchants")
def test_merchants_are_listed_whatever_endpoints_they_have() -> None:
    """Once each; those of others are named behind the table, and a pause of some is told as such."""
    listed = done("merchant", "list")
    assert [(each["id"], each["registered"], each.get("endpoints")) for each in listed] == [
        ("acme", True, ["ep_a", "ep_b"]),
        ("named", True, ["ep_m", "ep_n"]),
        ("one", True, None),
    ]
    table = run("merchant", "list").stdout
    assert table.startswith("3 merchants")
    assert table.splitlines()[-2:] == [
        "acme has further endpoints: ep_a, ep_b",
        "named has further endpoints: ep_m, ep_n",
    ]
    done("endpoint", "pause", "ep_a")
    done("merchant", "pause", "named")
    rows = [line.split("│") for line in run("merchant", "list").stdout.splitlines() if line.startswith("│")]
    assert {row[1].strip(): row[4].strip() for row in rows} == {"acme": "partly", "one": "no", "named": "yes"}


@pytest.mark.usefixtures("merchants")
def test_a_long_list_of_merchants_is_told_in_pieces() -> None:
    """A merchant is never cut in two; who is not registered comes behind the last one."""
    parts.ledger().hold(accept_all({"type": "kyc.x", "merchant_id": "zoe"})["zoe"], HeldFor.ADDRESS)
    first = run("merchant", "list", "--limit", "2").stdout
    assert first.startswith("the next 2 merchants")
    assert first.endswith("the next ones: --after named\n")
    assert "zoe" not in first
    rest = ["merchant", "list", "--limit", "2", "--after", "named"]
    assert run(*rest).stdout.startswith("1 merchants")
    assert [(each["id"], each["registered"]) for each in done(*rest)] == [("one", True), ("zoe", False)]


@pytest.mark.usefixtures("merchants")
def test_what_is_held_from_before_the_first_endpoint_is_told() -> None:
    """A merchant that got named endpoints only later is listed once, and is named as one that holds deliveries."""
    parts.ledger().hold(accept_all({"type": "kyc.x", "merchant_id": "late"})["late"], HeldFor.ADDRESS)
    parts.endpoints().add("late", "ep_late", Changes(url=URL, secret=SECRET))
    assert [each["registered"] for each in done("merchant", "list") if each["id"] == "late"] == [True]
    assert run("merchant", "list").stdout.endswith("deliveries are held for them: late\n")
    assert done("breaker", "show", "late")["held"] == 1
    assert run("breaker", "reset", "late").stdout.endswith("1 stay held for address\n")


def test_each_endpoint_has_a_breaker_of_its_own(merchants: System) -> None:
    """Listed, shown and reset by its id, with whose it is; the others stand as they did."""
    for endpoint_id in ("acme", "ep_a", "ep_n"):
        pause(parts.gate(), endpoint_id)
    listed = done("breaker", "list")
    whose = {each["endpoint_id"]: (each["merchant_id"], each["state"]) for each in listed}
    assert whose == {"acme": ("acme", "paused"), "ep_a": ("acme", "paused"), "ep_n": ("named", "paused")}
    assert "ep_n" in run("breaker", "list").stdout
    messages = accept_all({"type": "kyc.x", "merchant_id": "acme"})
    for message in messages.values():
        parts.ledger().hold(message, HeldFor.BREAKER)
    shown = done("breaker", "show", "ep_a")
    assert (shown["merchant_id"], shown["endpoint_id"], shown["state"], shown["held"]) == ("acme", "ep_a", "paused", 1)
    told = done("breaker", "reset", "ep_a", "--why", "they said so")
    assert told == {
        "merchant_id": "acme",
        "endpoint_id": "ep_a",
        "state": "working",
        "held": 1,
        "released": 1,
        "stay_for": None,
    }
    assert {each["endpoint_id"] for each in done("breaker", "list")} == {"acme", "ep_n"}
    done("endpoint", "pause", "ep_b")
    assert run("breaker", "reset", "ep_b").stdout == (
        "ep_b: working; 0 held deliveries are being released; 1 stay held for operator\n"
    )
    assert [line["what"] for line in done("audit")] == [
        "breaker reset of ep_b",
        "paused ep_b",
        "breaker reset of ep_a",
    ]


@pytest.mark.usefixtures("merchants")
def test_a_merchant_with_others_only_is_asked_which_one_is_meant() -> None:
    """Its name stands for a default endpoint that there is not; one line names those that there are."""
    told = "named has no default endpoint; name another, ep_m, ep_n, or register it: webhooks merchant set named --url"
    for command in (
        "breaker show named",
        "breaker reset named",
        "endpoint show named",
        "merchant rotate-secret named",
        "merchant set named --lane 1",
    ):
        assert told in refused(*command.split())
    assert done("audit") == []


@pytest.mark.parametrize("merchant_id", ["ep_ACME", "ep_", "ep_" + "x" * 41, "EP_x", "ep-x"])
def test_a_merchant_may_be_called_almost_like_an_endpoint(system: System, merchant_id: str) -> None:
    """What is no endpoint's id is a merchant's, in every command."""
    assert f"no merchant {merchant_id}; register it" in refused("endpoint", "show", merchant_id)
    done("merchant", "set", merchant_id, "--url", URL, "--secret", SECRET)
    pause(parts.gate(), merchant_id)
    assert [each["merchant_id"] for each in done("breaker", "list")] == [merchant_id]
    assert done("breaker", "reset", merchant_id)["merchant_id"] == merchant_id
    assert list(accept_all({"type": "kyc.x", "merchant_id": merchant_id})) == [merchant_id]
    assert done("endpoint", "remove", merchant_id, "--yes")["cancelled"] == 1
