"""What operators read, each once and again, on a ledger of 1,000,000 deliveries and 3,000,000 attempts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from benchmarks.arms.faces import faces
from benchmarks.bench import Bench
from benchmarks.crowd import RARE_ANSWER, RARE_TYPE, Crowd, fill
from benchmarks.figures import Row
from webhooks import parts, watching
from webhooks.common import database
from webhooks.ledger.desk import OnDesk
from webhooks.ledger.noticing import Noticing
from webhooks.ledger.replays import Replays
from webhooks.ledger.tailing import Followed, Tail
from webhooks.ledger.tallying import Tallying
from webhooks.ledger.views import Views, Wanted
from webhooks.model import HeldFor, Reason, State

_ROUNDS = 7
_PAGE = 50
_LARGE, _SMALL, _NAMED = "crowd-1", "crowd-299", "ep_crowd7"

_LISTS: Mapping[str, Wanted] = {
    "all": Wanted(),
    "a large merchant's": Wanted(merchant_id=_LARGE),
    "a small merchant's": Wanted(merchant_id=_SMALL),
    "an endpoint's": Wanted(endpoint_id=_NAMED),
    "a default endpoint's": Wanted(endpoint_id=_LARGE),
    "pending": Wanted(state=State.PENDING),
    "held": Wanted(state=State.HELD),
    "delivered": Wanted(state=State.DELIVERED),
    "failed": Wanted(state=State.FAILED),
    "held for an address": Wanted(held_for=HeldFor.ADDRESS),
    "failed as rejected": Wanted(reason=Reason.REJECTED),
    "failed money": Wanted(state=State.FAILED, money=True),
    "failed of a large merchant": Wanted(merchant_id=_LARGE, state=State.FAILED),
    "of a common type": Wanted(type="payment.status_changed"),
    "of a rare type": Wanted(type=RARE_TYPE),
    "of no type there is": Wanted(type="none.such"),
    "answered 200": Wanted(answer=200),
    "answered 503": Wanted(answer=503),
    "answered rarely": Wanted(answer=RARE_ANSWER),
    "never answered": Wanted(answer=451),
    "a merchant's, answered 503": Wanted(merchant_id=_LARGE, answer=503),
}


def asked(views: Views, replays: Replays, tallying: Tallying) -> Mapping[str, Callable[[], object]]:
    """Return every read by its name, and the statements by which notices are found."""
    desk, noticing = parts.desk(), Noticing(database())
    lists: dict[str, Callable[[], object]] = {
        f"list: {name}": lambda wanted=wanted: views.deliveries(wanted, _PAGE)  # type: ignore[misc]
        for name, wanted in _LISTS.items()
    }
    some = views.deliveries(Wanted(until=datetime.now(UTC) - timedelta(days=15)), 2).items[-1]
    return {
        **lists,
        "list: of a week, 15 days ago": lambda: views.deliveries(
            Wanted(since=some.accepted_at - timedelta(days=7), until=some.accepted_at), _PAGE
        ),
        "list: behind the half of all": lambda: views.deliveries(Wanted(), _PAGE, some.id),
        "list: 10,000": lambda: views.deliveries(Wanted(), 10_000),
        "find: a payment": lambda: views.find("pay_500000", _PAGE),
        "find: what many have": lambda: views.find("order-1", _PAGE),
        "find: nothing": lambda: views.find("none", _PAGE),
        "show": lambda: (views.delivery(some.id), views.event(some.event_id), views.of_event(some.event_id)),
        "standing": views.standing,
        "by state": views.count_by_state,
        "stock": views.stock,
        "let go": views.count_let_go,
        "the merchants that hold most": lambda: views.holders(20),
        "the endpoints that hold most": lambda: views.holding_most(20),
        "overdue": lambda: views.overdue(20),
        "desk: numbers": desk.numbers,
        "desk: groups": desk.groups,
        "desk: all": lambda: desk.deliveries(OnDesk(), _PAGE),
        "desk: a large merchant's": lambda: desk.deliveries(OnDesk(merchant_id=_LARGE), _PAGE),
        "tail: the last hour": lambda: list(
            Tail(database(), Followed(), datetime.now(UTC) - timedelta(hours=1)).news()
        ),
        "unregistered": views.unregistered,
        "pace": views.pace,
        "performance: endpoint": lambda: views.performance_at(_LARGE),
        "performance: merchant": lambda: views.performance_of("crowd-7"),
        "last answers": lambda: views.last_answers(_LARGE, 20),
        "held of a merchant": lambda: views.count_held(_LARGE),
        "holding": lambda: views.holding(_LARGE),
        "what a replay by type would take": lambda: replays.count(
            Wanted(type="refund.completed"), again=False, finished_before=datetime.now(UTC)
        ),
        "tally (a chore)": tallying.tally,
        "notices: failed money (a chore)": noticing.failed,
        "notices: opened breakers (a chore)": lambda: noticing.opened(dict.fromkeys([_LARGE, _NAMED])),
        "notices: only these open (a chore)": lambda: noticing.only_open([_LARGE, _NAMED]),
        "notices: ripe (a chore)": lambda: noticing.ripen(timedelta()),
        "notices: gone (a chore)": lambda: noticing.gone([_LARGE, _NAMED]),
    }


def timed(views: Views, replays: Replays, tallying: Tallying) -> list[Row]:
    """Time every read some times over; the first time counts, too."""
    rows = []
    while tallying.tally() > len("the last minutes"):  # caught up with a day
        pass
    for name, read in asked(views, replays, tallying).items():
        took = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            read()
            took.append(1000 * (time.perf_counter() - began))
        rows.append(Row("reads", name, {"p50 ms": statistics.median(took), "max ms": max(took)}))
    return rows


def reads(bench: Bench) -> list[Row]:
    """Fill the ledger, and read from it."""
    bench.reset()
    fill(bench.environment["WEBHOOKS_DATABASE_URL"], Crowd())
    try:
        return timed(parts.views(), parts.replays(), watching.tallying()) + faces(bench)
    finally:
        bench.sql("DELETE FROM endpoints WHERE merchant_id LIKE 'crowd-%'")
        bench.reset()
