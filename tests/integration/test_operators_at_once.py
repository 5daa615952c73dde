"""Several at once: two operators change one endpoint, and endpoints are removed while events are accepted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.courier import attempt, take
from tests.integration.test_endpoints import headers_of
from tests.integration.test_failed import fail
from tests.system import SECRET, System
from webhooks import deliver, parts
from webhooks.errors import NotPossible
from webhooks.ledger.endpoints import Endpoints
from webhooks.ledger.replays import Verdict
from webhooks.model import Changes, HeldFor, Operator, Reason, State
from webhooks.operating import desk, endpoints

URL = "https://acme.example/hook"
ALICE, BOB = Operator("alice"), Operator("bob")


def both_at_once(system: System, first: Callable[[Endpoints], object], second: Callable[[], Any]) -> None:
    """Do something, and before that counts, begin a second thing; the second one waits for the first."""
    with ThreadPoolExecutor(1) as pool:
        with parts.act(ALICE, "this was done", "webhooks audit") as act:
            first(parts.endpoints().within(act))
            later = pool.submit(second)
            system.wait_until(
                lambda: system.sql("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), "it waits"
            )
        later.result(30)


def test_two_who_change_headers_at_once_both_have_their_way(system: System) -> None:
    """The second one sees what the first has set, and what the first took away stays away."""
    parts.endpoints().add(
        "acme", "ep_x", Changes(url=URL, secret=SECRET, headers={"X-Old": "old", "X-Key": "one", "X-Stays": "there"})
    )
    both_at_once(
        system,
        lambda within: within.change("ep_x", Changes(headers={"X-First": "1", "X-Old": None})),
        lambda: endpoints.change(BOB, "ep_x", Changes(headers={"X-Second": "2", "x-key": None})),
    )
    assert headers_of(system, "ep_x") == {"X-First": "1", "X-Second": "2", "X-Stays": "there"}


@pytest.mark.parametrize("was_there", [False, True], ids=["new", "removed before"])
def test_two_who_register_a_merchant_at_once_both_have_their_way(system: System, *, was_there: bool) -> None:
    """The second one changes what the first has registered, and takes nothing of it away."""
    if was_there:
        parts.endpoints().set("acme", Changes(url=URL, secret=SECRET, headers={"X-Old": "old"}))
        parts.endpoints().remove("acme")
    both_at_once(
        system,
        lambda within: within.set("acme", Changes(url=URL, secret=SECRET, headers={"X-First": "1"}, lane=3)),
        lambda: endpoints.set_merchant(
            BOB, "acme", Changes(url=f"{URL}/new", secret=SECRET, headers={"X-Second": "2"})
        ),
    )
    assert headers_of(system, "acme") == {"X-First": "1", "X-Second": "2"}
    registered = parts.endpoints().get("acme")
    assert (registered.url, registered.lane) == (f"{URL}/new", 3)


def test_who_changes_what_was_just_removed_is_told_so(system: System) -> None:
    """Nothing of a change comes back to life."""
    parts.endpoints().add("acme", "ep_x", Changes(url=URL, secret=SECRET))
    with pytest.raises(NotPossible, match="no endpoint ep_x"):
        both_at_once(
            system,
            lambda within: within.remove("ep_x"),
            lambda: endpoints.change(BOB, "ep_x", Changes(headers={"X-A": "1"})),
        )
    assert system.sql("SELECT headers FROM endpoints") == [({},)]


@pytest.mark.parametrize(
    ("first", "second", "told", "state"),
    [
        ("replay", "dismiss", "it is held, not failed", State.HELD),
        ("dismiss", "dismiss", "it was dismissed already", State.FAILED),
        ("replay", "replay", "somebody else is at it; try again in a moment", State.HELD),
    ],
)
def test_two_at_the_desk_who_mean_the_same_delivery_do_one_thing(
    system: System, first: str, second: str, told: str, state: State
) -> None:
    """Whoever is later is told what the other did; the audit has the one line."""
    fail(system, "evt-1")
    acts = {"replay": desk.replay, "dismiss": desk.dismiss}
    within = {
        "replay": lambda act: parts.replays().within(act).replay(["evt-1"], again=False),
        "dismiss": lambda act: parts.desk().within(act).dismiss("alice", ["evt-1"], "dismissed"),
    }
    with ThreadPoolExecutor(1) as pool:
        with parts.act(ALICE, "this was done", "webhooks audit") as act:
            assert within[first](act) == [Verdict("evt-1")]
            later = pool.submit(acts[second], BOB, ["evt-1"])
            system.wait_until(
                lambda: (
                    later.done()  # who replays passes over what somebody else has
                    or system.sql("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
                ),
                "it waits, or is told",
            )
            act.note_deliveries(f"{first} of", ["evt-1"])
        assert later.result(30) == [Verdict("evt-1", told)]
    assert [line.who for line in parts.audit().latest(5).items] == ["alice"]
    assert system.counted() == {state: 1}


EVENTS, PRODUCERS = 15, 4


def accept(number: int) -> None:
    """Accept some events for a merchant, one after the other."""
    for each in range(EVENTS):
        deliver.delay({"id": f"evt-{number}-{each}", "type": "payment.x", "merchant_id": "acme"})


def work(system: System) -> None:
    """Do what workers and the sweep do, until nothing is left to do for them."""
    redis = system.redis()
    while message := take(redis):
        attempt(message)
    swept = parts.sweeper().tick()
    if swept.published or swept.released or swept.probes or swept.ended:
        work(system)


@pytest.mark.parametrize(
    ("there", "removed"),
    [({"acme"}, "acme"), ({"acme", "ep_x"}, "acme"), ({"acme", "ep_x"}, "ep_x"), ({"ep_x"}, "ep_x")],
)
def test_nothing_is_left_undone_where_an_endpoint_is_removed_while_events_come(
    system: System, there: set[str], removed: str
) -> None:
    """Each delivery to it ends, or waits for an address of a merchant that is to have a default endpoint again."""
    merchant = system.merchant("acme", registered=False)
    for endpoint_id in sorted(there):
        changes = Changes(url=merchant.url(), secret=SECRET)
        if endpoint_id == "acme":
            parts.endpoints().set("acme", changes)
        else:
            parts.endpoints().add("acme", endpoint_id, changes)
    with ThreadPoolExecutor(PRODUCERS) as pool:
        accepting = [pool.submit(accept, number) for number in range(PRODUCERS)]
        system.wait_until(lambda: sum(system.counted().values()) > EVENTS, "some are accepted")
        endpoints.remove(ALICE, removed)
        for each in accepting:
            each.result(60)
    work(system)
    found = system.sql("SELECT endpoint_id, state, reason, held_for FROM deliveries")
    assert len({row.id for row in system.sql("SELECT id FROM events")}) == EVENTS * PRODUCERS
    at_removed = {(row.state, row.reason or row.held_for) for row in found if row.endpoint_id == removed}
    assert (State.FAILED, Reason.CANCELLED) in at_removed
    may_wait = {(State.HELD, HeldFor.ADDRESS)} if removed == "acme" else set()
    assert at_removed <= {(State.FAILED, Reason.CANCELLED)} | may_wait
    others = there - {removed}
    assert {row.state for row in found if row.endpoint_id in others} == ({State.DELIVERED} if others else set())
    assert sum(row.endpoint_id in others for row in found) == EVENTS * PRODUCERS * len(others)
    parts.endpoints().set("acme", Changes(url=merchant.url(), secret=SECRET))
    work(system)
    assert system.counted().keys() <= {State.DELIVERED, State.FAILED}
