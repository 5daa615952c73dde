"""A merchant with several endpoints: each gets what it should, in its own way, and none notices another's trouble."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.command import done, run
from tests.gate.script import widen_only
from tests.merchant import Merchant, Request
from tests.system import System
from tests.worker.conftest import BUSY, SETTINGS
from webhooks import app, deliver, parts
from webhooks.model import Changes, HeldFor, State
from webhooks.operating import terminal
from webhooks.policy.breaker import BreakerState
from webhooks.signing import verify

TYPES = ("payment.status_changed", "refund.completed", "kyc.status_changed")
WAITS_FOR = 3
RATE = 5


def place(system: System, merchant_id: str, endpoint_id: str, **changes: Any) -> Merchant:
    """Start a server, and have a merchant's events go there as well; its secret is made of its id."""
    merchant = system.merchant(merchant_id, registered=False)
    wanted = Changes(url=merchant.url(), secret=f"the secret of {endpoint_id}", **changes)
    if endpoint_id == merchant_id:
        parts.endpoints().set(merchant_id, wanted)
    else:
        parts.endpoints().add(merchant_id, endpoint_id, wanted)
    return merchant


def accept(merchant_id: str, count: int, prefix: str, event_type: str = TYPES[1]) -> list[str]:
    """Accept so many money events of a merchant; returns their ids."""
    event = {"type": event_type, "merchant_id": merchant_id}
    return [deliver.delay({**event, "id": f"{merchant_id}-{prefix}-{number}"}).id for number in range(count)]


def at(endpoint_id: str, event_ids: list[str]) -> list[str]:
    """Return the ids of events' deliveries to an endpoint that is no default one."""
    return [f"{event_id}~{endpoint_id}" for event_id in event_ids]


def verifies(request: Request, secret: str) -> bool:
    """Verify a request as a receiver with this secret does."""
    stamp, signature = (request.header(f"X-Webhook-{name}") for name in ("Timestamp", "Signature"))
    return verify(secret, timestamp=stamp, signature=signature, body=request.body)


@pytest.mark.parametrize("first", ["{}", "ep_{}-all"], ids=["default and others", "others only"])
def test_each_gets_what_it_wants_signed_for_it(system: System, acme: str, first: str) -> None:
    """All events, those under a name, and one type: by the same ids, with secrets and headers of their own."""
    everything, star, one = first.format(acme), f"ep_{acme}-star", f"ep_{acme}-one"
    at_work = {
        everything: place(system, acme, everything, headers={"Authorization": "Bearer of all", "X-Of": "all"}),
        star: place(system, acme, star, types=("payment.*",), headers={"X-Of": "star"}, standard_headers=True),
        one: place(system, acme, one, types=(TYPES[1],)),
    }
    ids = {event_type: accept(acme, 2, event_type, event_type) for event_type in TYPES}
    expected = {
        everything: [each for of_type in ids.values() for each in of_type],
        star: ids[TYPES[0]],
        one: ids[TYPES[1]],
    }
    for endpoint_id, merchant in at_work.items():
        merchant.wait_for(len(expected[endpoint_id]))
    system.wait_for_count(State.DELIVERED, 10)
    for endpoint_id, merchant in at_work.items():
        assert sorted(str(request.webhook_id) for request in merchant.requests) == sorted(expected[endpoint_id])
        for request in merchant.requests:
            assert request.event["id"] == request.webhook_id
            assert {each for each in at_work if verifies(request, f"the secret of {each}")} == {endpoint_id}
            standard = (
                (request.webhook_id, request.header("X-Webhook-Timestamp")) if endpoint_id == star else (None,) * 2
            )
            assert (request.header("webhook-id"), request.header("webhook-timestamp")) == standard
    own = {
        endpoint_id: {(request.header("Authorization"), request.header("X-Of")) for request in merchant.requests}
        for endpoint_id, merchant in at_work.items()
    }
    assert own == {everything: {("Bearer of all", "all")}, star: {(None, "star")}, one: {(None, None)}}


def hold_at(system: System, merchant_id: str, endpoint_id: str, count: int) -> None:
    """Put deliveries that an endpoint's breaker holds straight into the ledger."""
    system.sql(
        """
        INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at)
        SELECT :merchant || '-row-' || n, :merchant, 'refund.completed', true, convert_to('{}', 'UTF8'), sha256('{}'),
               now()
        FROM generate_series(1, :count) AS n
        """,
        merchant=merchant_id,
        count=count,
    )
    system.sql(
        """
        INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, held_for, due_at,
                                accepted_at, expires_at)
        SELECT id || '~' || :endpoint, id, merchant_id, :endpoint, type, money, 'held', 'breaker', now(),
               accepted_at, now() + interval '30 days'
        FROM events WHERE id LIKE :merchant || '-row-%'
        """,
        merchant=merchant_id,
        endpoint=endpoint_id,
    )
    system.sql("ANALYZE deliveries")


def test_a_dead_endpoint_holds_nothing_of_the_others(system: System, acme: str) -> None:
    """Its own breaker opens; with thousands held, and while they are drained, the others get theirs at once."""
    dead_id, other_id = f"ep_{acme}-dead", f"ep_{acme}-other"
    default, other, dead = (place(system, acme, each) for each in (acme, other_id, dead_id))
    dead.answers(BUSY)
    openers = accept(acme, SETTINGS["breaker_min_attempts"], "opener")
    system.wait_until(lambda: parts.gate().show(dead_id).state is BreakerState.PAUSED, "its breaker opens")
    hold_at(system, acme, dead_id, 5_000)
    fresh = accept(acme, 10, "fresh")
    for alive in (default, other):
        alive.wait_for(len(openers) + len(fresh), timeout=10)
    system.wait_for_state(State.HELD, *at(dead_id, fresh))
    assert parts.views().count_held_at(dead_id)[HeldFor.BREAKER] >= 5_000
    assert {each: parts.gate().show(each).failures for each in (acme, other_id)} == {acme: 0, other_id: 0}
    # The openers may have filled the others' lanes for a moment: what was held for that is let go first.
    own = {acme, other_id, dead_id}
    system.wait_until(
        lambda: own & {each.endpoint_id for each in parts.gate().list()} == {dead_id}, "only one breaker is open"
    )
    dead.answers(200)
    seen = len(dead.requests)
    assert done("breaker", "reset", dead_id)["released"] >= 5_000
    dead.wait_until(lambda requests: len(requests) > seen + 50, what="the release is under way")
    meanwhile = accept(acme, 20, "meanwhile")
    for alive in (default, other):
        alive.wait_until(lambda requests: {*meanwhile} <= {each.webhook_id for each in requests}, timeout=10)
    shown = parts.gate().show(dead_id)
    assert shown.draining
    assert shown.in_flight + shown.slots <= 10
    assert sum(parts.views().count_held_at(dead_id).values()) > 0, "the release should still be under way"
    posts = Counter(request.webhook_id for each in (default, other) for request in each.requests)
    assert posts == dict.fromkeys([*openers, *fresh, *meanwhile], 2)


def test_an_endpoint_has_a_lane_of_its_own(system: System, acme: str) -> None:
    """Never two at once where the lane is one, while another endpoint of the same merchant has several in flight."""
    narrow_id = f"ep_{acme}-narrow"
    wide, narrow = place(system, acme, acme), place(system, acme, narrow_id, lane=1)
    widen_only(parts.gate(), merchant=acme)
    met = threading.Event()
    several = threading.Barrier(WAITS_FOR, met.set)
    lock, now_and_most = threading.Lock(), [0, 0]

    def at_once(_request: Request) -> int:
        several.wait(30)
        return 200

    def one_by_one(_request: Request) -> int:
        with lock:
            now_and_most[0] += 1
            now_and_most[1] = max(now_and_most)
        met.wait(30)
        with lock:
            now_and_most[0] -= 1
        return 200

    wide.answer_with(at_once)
    narrow.answer_with(one_by_one)
    ids = accept(acme, 2 * WAITS_FOR, "evt")
    system.wait_for_state(State.DELIVERED, *ids, *at(narrow_id, ids))
    assert now_and_most == [0, 1]
    assert len(narrow.requests) == len(wide.requests) == len(ids)


def test_an_endpoint_gets_no_more_than_its_rate(system: System, acme: str) -> None:
    """At most those of one second at once, and so many in each second after that; another endpoint waits for none.

    They are counted from the first event on, so that one which was late on its way makes none after it too many.
    """
    limited_id = f"ep_{acme}-limited"
    other, limited = place(system, acme, acme), place(system, acme, limited_id, rate=RATE)
    began = datetime.now(UTC)
    event = {"type": TYPES[1], "merchant_id": acme}
    ids = list(deliver.many([{**event, "id": f"{acme}-evt-{number}"} for number in range(3 * RATE)]))
    system.wait_until(lambda: parts.views().count_held_at(limited_id), "some are held")
    system.wait_for_state(State.DELIVERED, *ids, *at(limited_id, ids))
    came = [request.at for request in limited.requests]
    allowed = [RATE + RATE * (each - began).total_seconds() for each in sorted(came)]
    assert [number for number, most in enumerate(allowed, 1) if number > most] == []
    assert len(came) == len(other.requests) == len(ids)
    assert max(request.at for request in other.requests) < max(came)


def test_an_endpoint_is_paused_and_resumed_alone(system: System, acme: str) -> None:
    """Its deliveries are held for the operator, the others' arrive; resumed, it gets what it missed."""
    paused_id = f"ep_{acme}-paused"
    default, paused = place(system, acme, acme), place(system, acme, paused_id)
    done("endpoint", "pause", paused_id)
    ids = accept(acme, 2, "evt")  # no more than an endpoint gets at once that has yet to answer
    system.wait_for_state(State.DELIVERED, *ids)
    system.wait_for_state(State.HELD, *at(paused_id, ids))
    assert done("endpoint", "show", paused_id)["held"] == {"operator": 2}
    assert (len(default.requests), len(paused.requests)) == (2, 0)
    done("endpoint", "resume", paused_id)
    system.wait_for_state(State.DELIVERED, *at(paused_id, ids))
    assert (len(default.requests), len(paused.requests)) == (2, 2)


def test_one_delivery_is_replayed_to_its_endpoint_alone(system: System, acme: str) -> None:
    """The same event and bytes once more, at that endpoint and at no other."""
    again_id = f"ep_{acme}-again"
    default, again = place(system, acme, acme), place(system, acme, again_id)
    (event_id,) = accept(acme, 1, "evt")
    (delivery_id,) = at(again_id, [event_id])
    system.wait_for_state(State.DELIVERED, event_id, delivery_id)
    assert run("delivery", "replay", delivery_id, "--again", "--why", "they lost it").exit_code == 0
    again.wait_for(2)
    system.wait_for_state(State.DELIVERED, event_id, delivery_id)
    first, second = again.requests
    assert (first.webhook_id, first.body) == (second.webhook_id, second.body) == (event_id, default.requests[0].body)
    assert [each.header("X-Webhook-Attempt") for each in again.requests] == ["1", "2"]
    assert len(default.requests) == 1
    assert done("audit")[0]["what"] == f"replay of {delivery_id}"


def test_remote_control_knows_endpoints(system: System, acme: str) -> None:
    """`inspect breaker` says whose it is; `reset_breaker` names who asked in the audit, and refuses an unknown one."""
    endpoint_id, gone_id = f"ep_{acme}-x", f"ep_{acme}-gone"
    merchant = place(system, acme, endpoint_id)
    place(system, acme, gone_id)
    done("endpoint", "remove", gone_id, "--yes")
    merchant.answers(BUSY)
    widen_only(parts.gate(), merchant=endpoint_id)
    accept(acme, SETTINGS["breaker_min_attempts"], "opener")
    system.wait_until(lambda: parts.gate().show(endpoint_id).state is BreakerState.PAUSED, "its breaker opens")
    held = accept(acme, 2, "held")
    system.wait_for_state(State.HELD, *at(endpoint_id, held))
    shown = asked("breaker", endpoint_id)
    assert (shown["merchant_id"], shown["endpoint_id"]) == (acme, endpoint_id)
    assert (shown["state"], shown["held"]) == ("paused", 2)
    for unknown in ("ep_nosuch", gone_id):
        for command in ("breaker", "reset_breaker"):
            assert asked(command, unknown) == {"error": f"no endpoint {unknown}; see: webhooks endpoint list"}
    others_only = asked("reset_breaker", acme)["error"]
    assert others_only.startswith(f"{acme} has no default endpoint; name another, {endpoint_id}, or")
    merchant.answers(200)
    assert asked("reset_breaker", endpoint_id) == {"ok": f"breaker of {endpoint_id} reset"}
    assert asked("reset_breaker", endpoint_id, who="alice") == {
        "ok": f"breaker of {endpoint_id} was just reset, by {terminal.operator().name}"
    }
    first, *_ = done("audit")
    assert (first["what"], first["who"]) == (f"breaker reset of {endpoint_id}", terminal.operator().name)
    system.wait_for_state(State.DELIVERED, *at(endpoint_id, held))


def asked(command: str, endpoint_id: str, **more: str) -> dict[str, Any]:
    """Send a command to the worker, and return what it says."""
    arguments = {"merchant_id": endpoint_id, **more}
    (reply,) = app.control.broadcast(command, arguments, reply=True, timeout=10, limit=1)
    (said,) = reply.values()
    return dict(said)
