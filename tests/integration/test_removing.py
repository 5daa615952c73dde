"""`webhooks endpoint remove`: it asks, it ends what is unfinished, and who comes back has nothing of before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.command import done, refused, run
from tests.courier import accept, accept_all, attempt, attempt_again, take
from tests.integration.test_breaker import hold_rows, pause, touched
from tests.merchant import Reply, Request
from tests.system import SECRET, System
from webhooks import parts
from webhooks.delivery import SetAside
from webhooks.errors import LedgerUnavailable
from webhooks.ledger import removal
from webhooks.model import Changes, HeldFor, Message, Reason, State
from webhooks.operating import endpoints
from webhooks.policy.decisions import Delivered, Failed, RetryAt

URL = "https://acme.example/hook"
EVENT = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
CANCELLED = (State.FAILED, Reason.CANCELLED)


def add(endpoint_id: str, url: str = URL) -> None:
    """Have one more endpoint of a merchant."""
    parts.endpoints().add("acme", endpoint_id, Changes(url=url, secret=SECRET))


def standing(system: System, *messages: Message) -> list[tuple[str, str | None]]:
    """Return state and reason of deliveries."""
    found = [system.delivery(message.id) for message in messages]
    return [(each["state"], each["reason"] or each["held_for"]) for each in found]


@pytest.mark.parametrize("said", ["n\n", "\n", ""], ids=["no", "nothing", "nobody there"])
def test_it_asks_and_takes_nothing_for_a_yes(system: System, said: str) -> None:
    """The question says how many deliveries end; without a terminal there is nobody who could say yes."""
    add("ep_x")
    messages = [accept(EVENT) for _ in range(3)]
    parts.ledger().hold(messages[0], HeldFor.LANE)
    result = run("endpoint", "remove", "ep_x", "--json", stdin=said)
    assert (result.exit_code, result.stdout) == (1, "")
    asked, told = result.stderr.split("[y/N]: ")
    assert asked == ("Remove ep_x? 3 unfinished deliveries of it end as cancelled, and nothing goes there any more ")
    assert told.strip().endswith("webhooks: nothing was removed; to go on without a question: --yes")
    assert parts.endpoints().find("ep_x")
    assert standing(system, *messages)[1:] == [(State.PENDING, None)] * 2
    assert done("audit") == []


@pytest.mark.parametrize(("options", "said"), [(["--yes"], None), ([], "y\n")], ids=["--yes", "y"])
def test_what_is_held_and_what_waits_ends_as_cancelled(
    system: System, options: Sequence[str], said: str | None
) -> None:
    """However many, of this endpoint alone, and not what had ended; the audit names them, and says who removed what."""
    add("ep_gone")
    add("ep_stays")
    both = [accept_all(EVENT) for _ in range(4)]
    gone, stays = ([each[endpoint_id] for each in both] for endpoint_id in ("ep_gone", "ep_stays"))
    parts.ledger().hold(gone[0], HeldFor.BREAKER)
    system.sql(
        "UPDATE deliveries SET state = 'delivered', finished_at = now(), sweep_at = NULL WHERE id = :id", id=gone[3].id
    )
    result = run("endpoint", "remove", "ep_gone", "--why", "they left", *options, stdin=said)
    assert (result.exit_code, result.stdout) == (0, "ep_gone is removed; 3 deliveries ended as cancelled\n")
    assert standing(system, *gone) == [CANCELLED] * 3 + [(State.DELIVERED, None)]
    assert standing(system, *stays) == [(State.PENDING, None)] * 4
    *cancelled, removed = done("audit")
    assert (removed["what"], removed["why"], removed["deliveries"]) == ("removed ep_gone of acme", "they left", None)
    assert sum(line["deliveries"] for line in cancelled) == 3
    assert {line["why"] for line in cancelled} == {"they left"}
    named = ", ".join(line["what"].removeprefix("removal of ep_gone: cancelled ") for line in cancelled)
    assert sorted(named.split(", ")) == sorted(message.id for message in gone[:3])
    assert "ep_gone" not in run("endpoint", "list").stdout
    assert [attempt(message) for message in gone[:3]] == [SetAside(None)] * 3


def test_thousands_end_batch_by_batch(system: System) -> None:
    """Each batch counts with its lines; what it came to is told at the end."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    hold_rows(system, "acme", 1_234)
    assert done("endpoint", "remove", "acme", "--yes") == {
        "endpoint_id": "acme",
        "merchant_id": "acme",
        "cancelled": 1_234,
    }
    assert system.counted() == {State.FAILED: 1_234}
    assert sum(line["deliveries"] or 0 for line in done("audit", "--limit", "50")) == 1_234


@pytest.mark.parametrize(("status", "ends"), [(200, (State.DELIVERED, None)), (503, CANCELLED)])
def test_what_is_being_sent_may_finish_and_is_not_tried_again(
    system: System, status: int, ends: tuple[State, Reason | None]
) -> None:
    """An answer that comes counts; a retry finds the endpoint gone."""
    merchant = system.merchant("acme")

    def remove(_request: Request) -> Reply:
        assert run("endpoint", "remove", "acme", "--yes").stdout.startswith("acme is removed; 0 deliveries")
        return Reply(status)

    merchant.answer_with(remove)
    message = accept(EVENT)
    decision = attempt(message)
    assert isinstance(decision, Delivered if status == 200 else RetryAt)
    if status == 503:
        assert attempt_again(message) == Failed(Reason.CANCELLED)
    assert standing(system, message) == [ends]
    assert len(merchant.requests) == system.delivery(message.id)["attempts"] == 1


@pytest.mark.parametrize("removed", ["acme", "ep_x"])
def test_a_message_on_its_way_ends_its_delivery(system: System, removed: str) -> None:
    """Where the command ended before it came to it, the worker does, without a POST; and a breaker does not matter."""
    merchant = system.merchant("acme")
    add("ep_x", merchant.url())
    message, held_later = (accept_all(EVENT)[removed] for _ in range(2))
    parts.endpoints().remove(removed)  # as far as a command comes that is killed then
    assert attempt(message) == Failed(Reason.CANCELLED)
    assert standing(system, message) == [CANCELLED]
    pause(parts.gate(), removed)
    assert attempt(held_later) == SetAside(HeldFor.BREAKER, parts.gate().show(removed).until)
    assert parts.sweeper().tick().ended == 1
    assert standing(system, held_later) == [CANCELLED]
    assert merchant.requests == []


def test_the_sweep_ends_what_a_killed_command_left_held(system: System) -> None:
    """Of all endpoints that were removed, and of no other, and what is pending goes its own way."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    add("ep_x")
    add("ep_stays")
    messages = accept_all(EVENT)
    for message in messages.values():
        parts.ledger().hold(message, HeldFor.OPERATOR)
    parts.endpoints().pause("ep_stays", paused=True)
    for endpoint_id in ("acme", "ep_x"):
        parts.endpoints().remove(endpoint_id)
    assert parts.sweeper().tick().ended == 2
    assert standing(system, *(messages[each] for each in ("acme", "ep_x", "ep_stays"))) == [
        CANCELLED,
        CANCELLED,
        (State.HELD, HeldFor.OPERATOR),
    ]


def test_a_ledger_that_goes_away_in_between_is_told_with_what_is_done(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint is removed all the same; one line says so, and that the rest ends."""
    add("ep_x")
    messages = [accept(EVENT) for _ in range(3)]
    monkeypatch.setattr(removal, "_BATCH", 1)
    some, calls = removal.cancel_some, iter([True, False])

    def away(act: Any, endpoint_id: str) -> Sequence[str]:
        if next(calls):
            return some(act, endpoint_id)
        raise LedgerUnavailable("the ledger cannot be used: gone")

    monkeypatch.setattr(endpoints, "cancel_some", away)
    assert refused("endpoint", "remove", "ep_x", "--yes") == (
        "webhooks: ep_x is removed; 3 of its deliveries have ended, the others end as they come up "
        "(the ledger cannot be used: gone)"
    )
    assert parts.endpoints().find("ep_x") is None
    assert standing(system, *messages) == [CANCELLED] * 3


def test_what_is_accepted_without_an_endpoint_waits_for_the_next_one(system: System) -> None:
    """The default endpoint is removed and registered again: what came in between goes to it, and no older one."""
    before = system.merchant("acme")
    old = accept(EVENT)
    assert done("endpoint", "remove", "acme", "--yes")["cancelled"] == 1
    between = accept(EVENT)
    assert attempt(between) == SetAside(HeldFor.ADDRESS)
    tick = parts.sweeper().tick()
    assert (tick.ended, tick.released) == (0, 0)
    assert "not registered, though deliveries are held for them: acme" in run("merchant", "list").stdout
    assert "no merchant acme, and 1 of its deliveries are held; register it" in refused("merchant", "show", "acme")
    after = system.merchant("acme", registered=False)
    done("merchant", "set", "acme", "--url", after.url(), "--secret", SECRET)
    assert parts.sweeper().tick().released == 1
    released = take(system.redis())
    assert released
    assert attempt(released) == Delivered()
    assert [request.webhook_id for request in after.requests] == [between.id]
    assert before.requests == []
    assert standing(system, old, between) == [CANCELLED, (State.DELIVERED, None)]


def test_what_is_accepted_while_there_are_others_goes_to_these(system: System) -> None:
    """Nothing is held under the merchant's own id, and the default endpoint that comes back gets what comes then."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    add("ep_x")
    done("endpoint", "remove", "acme", "--yes")
    assert list(accept_all(EVENT)) == ["ep_x"]
    done("merchant", "set", "acme", "--url", URL, "--secret", SECRET)
    assert list(accept_all(EVENT)) == ["acme", "ep_x"]
    assert {row.endpoint_id for row in system.sql("SELECT endpoint_id FROM deliveries")} == {"acme", "ep_x"}


def test_nothing_of_the_old_settings_comes_back(system: System) -> None:
    """Neither secrets, headers, filter, limits, note, pause nor breaker; an address needs a secret as for a new one."""
    options = ["--standard-headers", "--header", "X-Key: one", "--type", "kyc.*", "--lane", "2", "--rate", "2"]
    options += ["--note", "old"]
    first = done("merchant", "set", "acme", "--url", URL, "--secret", SECRET, *options)
    done("merchant", "rotate-secret", "acme")
    done("merchant", "pause", "acme")
    pause(parts.gate(), "acme")
    done("endpoint", "remove", "acme", "--yes")
    assert done("breaker", "list") == []
    (row,) = system.sql("SELECT to_jsonb(e) AS all_of_it FROM endpoints e")
    assert {name for name, value in row.all_of_it.items() if value not in (None, {}, False)} == {
        "id",
        "merchant_id",
        "created_at",
        "updated_at",
        "removed_at",
    }
    for command in ("set acme --lane 1", "set acme --no-url", "pause acme", "rotate-secret acme"):
        assert "no merchant acme; register it with" in refused("merchant", *command.split())
    assert "acme has no secret yet" in refused("merchant", "set", "acme", "--url", URL)
    again = done("merchant", "set", "acme", "--url", URL, "--secret", "another")
    nothing = dict.fromkeys(("types", "lane", "rate", "note", "paused_at"))
    assert {name: again[name] for name in nothing} == nothing
    assert (again["standard_headers"], again["headers"]) == (False, [])
    assert again["previous_secret_until"] is None
    assert again["created_at"] > first["created_at"]
    assert list(accept_all(EVENT)) == ["acme"]


def test_a_removed_endpoint_is_sent_nothing_by_a_replay(system: System) -> None:
    """There is no address any more, which the refusal says."""
    add("ep_x")
    message = accept(EVENT)
    done("endpoint", "remove", "ep_x", "--yes")
    told = run("delivery", "replay", message.id, "--cancelled", "--why", "by mistake")
    assert (told.exit_code, told.stderr) == (1, f"{message.id}: its endpoint was removed\n")
    assert standing(system, message) == [CANCELLED]


def test_a_removed_merchant_that_goes_on_getting_events_costs_a_tick_nothing(system: System) -> None:
    """However much of it waits for an address, the sweep asks for one index entry, and ends none of it."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    done("endpoint", "remove", "acme", "--yes")
    system.sql("UPDATE endpoints SET removed_at = now() - interval '1 day'")
    hold_rows(system, "acme", 5_000)
    parts.sweeper().tick()
    before = touched(system)
    assert parts.sweeper().tick().ended == 0
    assert touched(system) - before <= 12
    system.sql("UPDATE deliveries SET accepted_at = now() - interval '2 days' WHERE id = 'acme-row-77'")
    assert parts.sweeper().tick().ended == 1
