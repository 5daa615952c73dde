"""What becomes a notice, how often, and whom it reaches: on the real ledger and gate, round by round."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import command, courier
from tests.merchant import Merchant, Reply
from tests.system import System
from webhooks import common, parts, watching
from webhooks.errors import GateUnavailable, SettingsError
from webhooks.ledger import noticing
from webhooks.ledger.leases import Lease
from webhooks.ledger.notices import NoticeRow, Reached
from webhooks.ledger.noticing import Noticing
from webhooks.model import Changes, State
from webhooks.observing.facts import Fact
from webhooks.observing.observers import Observers
from webhooks.observing.operators import NoticeSent, NoticesStopped, RecipientAway, RecipientBack, RecipientName
from webhooks.policy.breaker import BreakerRules
from webhooks.telling.said import Said
from webhooks.telling.teller import Teller, TellingRules
from webhooks.telling.wording import Notification

PAID = {"type": "payment.status_changed", "status": "paid"}
RULES = TellingRules(timedelta(days=1), per_hour=20, keep=timedelta(days=180))


class Box:
    """A recipient that keeps what it is told, or refuses it."""

    def __init__(self, name: RecipientName = RecipientName.URL) -> None:
        self.name = name
        self.refuses = False
        self.asked = 0
        self.told: list[dict[str, Any]] = []

    def tell(self, notification: Notification) -> Said:
        """Take it."""
        self.asked += 1
        if self.refuses:
            return Said(False, "answered 503", "PATHCANARY")
        self.told.append(notification.told)
        return Said(True, "taken")


class Desk:
    """A teller with recipients in memory, and what it says of itself."""

    def __init__(self, *boxes: Box, per_hour: int = 20) -> None:
        self.boxes = boxes or (Box(),)
        self.facts: list[Fact] = []
        rules = TellingRules(RULES.after, per_hour, RULES.keep)
        lease = Lease(parts.database(), "notices")
        noticing = Noticing(parts.database())
        observers = Observers([self.facts.append])
        self._teller = Teller(lease, noticing, lambda: parts.gate().list(), self.boxes, rules, observers)

    def round(self) -> list[dict[str, Any]]:
        """Make a round, once all that was heard is noted; return what the first recipient was told in it."""
        common.noting().settle()
        told = len(self.boxes[0].told)
        self._teller.round()
        return self.boxes[0].told[told:]


def notices() -> Sequence[NoticeRow]:
    """Return all notices, the latest first."""
    return watching.notices().latest(100).items


def later(system: System, span: str = "1 day") -> None:
    """Let time pass for all that was noted."""
    common.noting().settle()
    system.sql(
        "UPDATE notices SET since = since - CAST(:span AS interval), noted_at = noted_at - CAST(:span AS interval), "
        "try_at = try_at - CAST(:span AS interval), told_at = told_at - CAST(:span AS interval)",
        span=span,
    )


def send(merchant_id: str, name: str, **more: str) -> object:
    """Make the first attempt of an event."""
    return courier.send({**PAID, "id": f"{merchant_id}-{name}", "merchant_id": merchant_id, **more})


def dead(system: System, merchant_id: str = "acme") -> Merchant:
    """Have a merchant whose breaker has opened, with two deliveries held for it."""
    merchant = system.merchant(merchant_id)
    merchant.answers(Reply(503, headers=[("Retry-After", "3600")]))
    for number in range(BreakerRules().min_attempts + 2):
        send(merchant_id, str(number))
    assert system.counted() == {State.HELD: 2, State.PENDING: BreakerRules().min_attempts}
    return merchant


def test_an_endpoint_that_stays_paused_is_told_once(system: System) -> None:
    """After a day, and not before: whose it is, since when, how much waits; and nothing of its address but the host."""
    dead(system)
    desk = Desk()
    assert desk.round() == []
    assert notices() == []
    later(system, "23 hours 59 minutes")
    assert desk.round() == []
    later(system, "1 minute")
    (told,) = desk.round()
    assert (told["kind"], told["merchant_id"], told["endpoint_id"]) == ("endpoint_paused", "acme", "acme")
    assert (told["host"], told["held"], told["failed"]) == ("localhost", 2, 0)
    assert desk.round() == []
    (noted,) = notices()
    assert (noted.reached, noted.told_to, noted.tries) == (Reached.TOLD, ("url",), 1)
    assert parts.gate().show("acme").state.value == "paused"  # nothing was switched off
    later(system, "3 days")
    assert desk.round() == []


def test_one_that_came_back_begins_anew(system: System) -> None:
    """A breaker that closed and opened again has not been open for a day, and what was not told yet never is."""
    dead(system)
    desk = Desk()
    desk.boxes[0].refuses = True
    later(system)
    desk.round()
    assert [each.reached for each in notices()] == [Reached.WAITING]
    parts.gate().reset("acme")
    common.noting().settle()
    assert [each.reached for each in notices()] == [Reached.GIVEN_UP]
    for number in range(BreakerRules().min_attempts):
        send("acme", f"again-{number}")
    desk.boxes[0].refuses = False
    later(system, "23 hours")
    assert desk.round() == []
    later(system, "1 hour")
    assert len(desk.round()) == 1


def test_a_close_that_was_not_heard_is_found_out(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its worker was killed: the next look at the gate says so, where nothing is held for the breaker."""
    dead(system)
    common.noting().settle()
    monkeypatch.setattr(common.noting(), "_remember", lambda *_, **__: None)
    parts.gate().reset("acme")
    command.done("delivery", "cancel", *[row.id for row in system.sql("SELECT id FROM deliveries")], "--why", "x")
    later(system)
    assert Desk().round() == []
    assert system.sql("SELECT id FROM notices") == []


def test_an_opening_that_was_not_heard_is_found_out(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since when says the gate, as far as what is held says the same."""
    monkeypatch.setattr(common.noting(), "_remember", lambda *_, **__: None)
    dead(system)
    desk = Desk()
    assert desk.round() == []
    later(system)
    assert [each["kind"] for each in desk.round()] == ["endpoint_paused"]


def test_a_flushed_redis_hides_nothing(system: System) -> None:
    """What is held for the breaker says that the endpoint has not come back; the day goes on."""
    dead(system)
    desk = Desk()
    desk.round()
    later(system)
    system.redis().flushall()
    assert parts.gate().list() == ()
    assert [each["kind"] for each in desk.round()] == ["endpoint_paused"]


def test_a_redis_that_remembers_what_is_long_over_tells_nothing(system: System) -> None:
    """As one restored from an old copy: since when an endpoint is paused, the ledger must say, too."""
    dead(system)
    common.noting().settle()
    system.sql("DELETE FROM notices")
    (row,) = system.sql("SELECT now() - interval '9 days' AS long_ago, now() - interval '2 days' AS lately")
    Noticing(parts.database()).opened({"acme": row.long_ago})
    assert Desk().round() == []
    system.sql("DELETE FROM notices")
    system.sql("UPDATE deliveries SET due_at = :lately WHERE state = 'held'", lately=row.lately)
    Noticing(parts.database()).opened({"acme": row.long_ago})
    assert [each["since"][:13] for each in Desk().round()] == [f"{row.lately:%Y-%m-%dT%H}"]


def test_without_the_gate_nobody_is_told_what_may_be_over(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once the gate can be asked; what does not need it is told all the same."""
    dead(system)
    common.noting().settle()
    later(system)
    gone(system, "books")
    with monkeypatch.context() as away:
        away.setattr(parts.gate(), "list", unreachable)
        assert [each["kind"] for each in Desk().round()] == ["endpoint_gone"]
    assert [each["kind"] for each in Desk().round()] == ["endpoint_paused"]


def unreachable() -> None:
    """Be a gate that is away."""
    raise GateUnavailable("no route")


@pytest.mark.parametrize("by_hand", ["pause", "remove"])
def test_what_an_operator_has_stopped_is_not_told(system: System, by_hand: str) -> None:
    """Whoever did it knows."""
    dead(system)
    common.noting().settle()
    later(system)
    assert command.run("endpoint", by_hand, "acme", *(["--yes"] if by_hand == "remove" else [])).exit_code == 0
    assert Desk().round() == []


def gone(system: System, merchant_id: str) -> Merchant:
    """Have a merchant that answers 410."""
    merchant = system.merchant(merchant_id)
    merchant.answers(410)
    send(merchant_id, "gone")
    return merchant


def test_a_410_is_told_once_a_day(system: System) -> None:
    """For each endpoint, however many deliveries and processes hear it; and nothing is switched off for it."""
    gone(system, "acme")
    send("acme", "again")
    desk = Desk()
    (told,) = desk.round()
    assert (told["kind"], told["merchant_id"], told["host"]) == ("endpoint_gone", "acme", "localhost")
    Noticing(parts.database()).gone(["acme"])  # as another process does
    assert desk.round() == []
    system.sql("UPDATE notices SET key = 'gone yesterday'")
    parts.observers.forget()
    common.noting.forget()
    parts.courier.forget()
    send("acme", "tomorrow")
    assert len(desk.round()) == 1
    assert parts.endpoints().get("acme").url


def test_a_410_costs_one_statement_a_day(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """And another answer none."""
    written: list[list[str]] = []
    monkeypatch.setattr(Noticing, "gone", lambda _, endpoint_ids: written.append(endpoint_ids))
    gone(system, "acme").answers(410, 410, 404, 410)
    for number in range(4):
        send("acme", str(number))
    common.noting().settle()
    assert written == [["acme"]]


def fail(system: System, merchant_id: str, name: str, **more: str) -> None:
    """Have a delivery fail for good."""
    send(merchant_id, name, **more)
    assert system.delivery(f"{merchant_id}-{name}")["state"] == State.FAILED


def exhausted(system: System, merchant_id: str) -> None:
    """Have a merchant that never answers well, whose money events fail at their first attempt."""
    system.set(fast_waits="1", slow_waits="1", slow_ceiling="500ms")
    system.merchant(merchant_id).answers(404)


def test_the_first_money_event_that_fails_is_told(system: System) -> None:
    """Once for a merchant; the next day the next one is the first again, and one in between is not."""
    exhausted(system, "acme")
    desk = Desk()
    fail(system, "acme", "1")
    fail(system, "acme", "2")
    (told,) = desk.round()
    assert (told["kind"], told["merchant_id"], told["failed"]) == ("money_failed", "acme", 2)
    fail(system, "acme", "3")
    assert desk.round() == []
    later(system)
    system.sql("UPDATE deliveries SET finished_at = finished_at - interval '23 hours'")
    assert desk.round() == []  # those were within a day of the notice
    fail(system, "acme", "4")
    assert [each["failed"] for each in desk.round()] == [4]


def test_what_the_sweep_ends_is_told_too(system: System) -> None:
    """No attempt has said so: the ledger knows."""
    system.merchant("acme")
    courier.accept({**PAID, "id": "evt-1", "merchant_id": "acme"})
    system.sql("UPDATE deliveries SET expires_at = now()")
    parts.sweeper().tick()
    assert [each["kind"] for each in Desk().round()] == ["money_failed"]


def test_what_needs_no_person_is_not_told(system: System) -> None:
    """An event that is not money, and one that an operator cancelled."""
    exhausted(system, "acme")
    fail(system, "acme", "kyc", type="kyc.status_changed")
    courier.accept({**PAID, "id": "evt-1", "merchant_id": "acme"})
    command.done("delivery", "cancel", "evt-1", "--why", "x")
    assert Desk().round() == []


def test_one_merchants_money_is_not_lost_among_the_failures_of_others(system: System) -> None:
    """However many there are that are newer, and no money."""
    failed_at_once(system, 1, "acme", money=True)
    failed_at_once(system, 10_001, "flood", money=False)
    (told,) = Desk().round()
    assert (told["kind"], told["merchant_id"], told["failed"]) == ("money_failed", "acme", 1)


def test_what_a_person_has_dealt_with_is_not_told(system: System) -> None:
    """Where it was dismissed before anybody was told; the next one is the first then."""
    failed_at_once(system, 2, "acme", money=True)
    parts.desk().dismiss("somebody", ["acme-1", "acme-2"], "done")
    desk = Desk()
    assert desk.round() == []
    failed_at_once(system, 1, "acme", money=True, prefix="another")
    (told,) = desk.round()
    assert (told["merchant_id"], told["failed"]) == ("acme", 1)


def failed_at_once(system: System, number: int, merchant_id: str, *, money: bool, prefix: str = "") -> None:
    """Have so many deliveries of a merchant be failed."""
    system.sql(
        "INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, reason, due_at,"
        " accepted_at, expires_at, finished_at) SELECT :prefix || '-' || n, :prefix || '-' || n, :merchant, :merchant,"
        " 'x', :money, 'failed', 'rejected', now(), now(), now(), now() FROM generate_series(1, :number) AS n",
        prefix=prefix or merchant_id,
        merchant=merchant_id,
        money=money,
        number=number,
    )


def test_what_was_noted_is_sent_though_something_else_cannot_be(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as where a step of the look takes longer than the server allows."""
    many_gone(1)
    monkeypatch.setattr(Noticing, "ripen", lambda *_: 1 / 0)
    desk = Desk()
    with pytest.raises(ZeroDivisionError):
        desk.round()
    assert [each["kind"] for each in desk.boxes[0].told] == ["endpoint_gone"]


def test_two_processes_tell_once(system: System) -> None:
    """Whether they come at the same time or one after the other, and also where the lease is lost."""
    gone(system, "acme")
    common.noting().settle()
    noticing = Noticing(parts.database())
    (waiting,) = noticing.waiting()[0]
    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(lambda _: noticing.claim([waiting.id]), range(4)))
    assert sum(each is not None for each in claimed) == 1
    later(system, "2 minutes")
    box = Box()
    desks = [Desk(box) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Desk.round, desks))
    assert len(box.told) == 1


def many_gone(count: int, prefix: str = "m") -> None:
    """Note that so many endpoints are gone."""
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        parts.endpoints().set(name, Changes(url="https://localhost/", secret="x"))
    Noticing(parts.database()).gone(names)


def test_what_is_above_the_hours_rate_comes_in_one_message(system: System) -> None:
    """The last of the hour; nothing more comes until there is room, and nothing is left out."""
    many_gone(5)
    desk = Desk(per_hour=3)
    told = desk.round()
    assert [each["kind"] for each in told] == ["endpoint_gone", "endpoint_gone", "summary"]
    assert told[2]["number"] == 3
    assert [each.reached for each in notices()] == [Reached.TOLD] * 5
    many_gone(2, "n")
    assert desk.round() == []
    later(system, "61 minutes")
    assert [each["kind"] for each in desk.round()] == ["endpoint_gone"] * 2


def test_a_broken_recipient_is_a_fact_once_and_has_it_in_the_end(system: System) -> None:
    """It is asked once a round, whatever waits; the other has each notice once, and at once."""
    many_gone(3)
    mail, url = Box(RecipientName.MAIL), Box(RecipientName.URL)
    url.refuses = True
    desk = Desk(mail, url)
    assert len(desk.round()) == 3
    assert url.asked == 1
    for tries in range(2, 5):
        later(system, "61 minutes")
        assert desk.round() == []
        assert url.asked == tries
    away = [each for each in desk.facts if isinstance(each, RecipientAway | RecipientBack)]
    assert away == [RecipientAway(RecipientName.URL, "answered 503")]
    assert {(each.reached, each.told_to) for each in notices()} == {(Reached.WAITING, ("mail",))}
    assert any("answered 503 PATHCANARY" in (each.trouble or "") for each in notices())
    url.refuses = False
    later(system, "61 minutes")
    assert desk.round() == []
    assert (len(mail.told), len(url.told)) == (3, 3)
    assert {(each.reached, each.told_to, each.trouble) for each in notices()} == {(Reached.TOLD, ("mail", "url"), None)}
    assert [each for each in desk.facts if isinstance(each, RecipientBack)] == [RecipientBack(RecipientName.URL)]
    assert len([each for each in desk.facts if isinstance(each, NoticeSent)]) == 6
    assert "PATHCANARY" not in str(desk.facts)


def test_what_a_broken_recipient_lacks_is_not_told_anew_to_the_others(system: System) -> None:
    """Nor in the way of what is new, however much it lacks: it comes behind, and in messages of its own."""
    many_gone(5)
    mail, url = Box(RecipientName.MAIL), Box(RecipientName.URL)
    url.refuses = True
    desk = Desk(mail, url, per_hour=3)
    assert [each.get("number", 1) for each in desk.round()] == [1, 1, 3]
    later(system, "61 minutes")
    many_gone(3, "n")
    assert [each["endpoint_id"] for each in desk.round()] == ["n-0", "n-1", "n-2"]
    url.refuses = False
    later(system, "61 minutes")
    assert desk.round() == []
    assert sum(each.get("number", 1) for each in url.told) == 8
    assert {(each.reached, each.told_to) for each in notices()} == {(Reached.TOLD, ("mail", "url"))}


def test_it_is_tried_for_a_day_and_less_and_less_often(system: System) -> None:
    """A minute after the first time, at most an hour later in the end; then it is given up, and can be read."""
    many_gone(1)
    desk = Desk()
    desk.boxes[0].refuses = True
    waits = []
    for _ in range(9):
        desk.round()
        ((wait,),) = system.sql("SELECT try_at - now() AS wait FROM notices")
        waits.append(round(wait.total_seconds() / 60))
        system.sql("UPDATE notices SET try_at = now()")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    later(system)
    desk.boxes[0].refuses = False
    assert desk.round() == []
    assert [each.reached for each in notices()] == [Reached.GIVEN_UP]
    later(system, "181 days")
    desk.round()
    assert notices() == []


def test_without_a_recipient_notices_are_kept_to_be_read(system: System) -> None:
    """And whoever chooses one is told of the last day."""
    gone(system, "acme")
    common.noting().settle()
    watching.teller().round()
    assert [(each.reached, each.tries) for each in notices()] == [(Reached.WAITING, 0)]
    assert len(Desk().round()) == 1


def test_a_ledger_that_is_away_is_said_once_and_the_410_is_noted_later(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink raises nothing, and its next 410 finds the ledger again."""
    noting, told = common.noting(), list[Fact]()
    monkeypatch.setattr(noting, "_observers", lambda: Observers([told.append]))
    merchant = system.merchant("acme")
    merchant.answers(410)
    with monkeypatch.context() as broken:
        broken.setattr(Noticing, "gone", lambda *_: 1 / 0)
        for number in range(3):
            send("acme", str(number))
            noting.settle()
    assert told == [NoticesStopped("division by zero")]
    send("acme", "later")
    assert len(Desk().round()) == 1


def test_operators_read_and_try_them(system: System) -> None:
    """`notice list` says what was told and to whom, `notice test` what each recipient answered; it is an act."""
    receiver = system.keep(Merchant(system.ca))
    system.set(notice_url=receiver.url("/PATHCANARY"), notice_secret="SECCANARY", notice_command="sh -c 'cat; exit 3'")
    gone(system, "acme")
    common.noting().settle()
    watching.teller().round()
    (listed,) = command.done("notice", "list")
    assert (listed["kind"], listed["reached"], listed["told_to"]) == ("endpoint_gone", "waiting", ["url"])
    assert listed["trouble"].startswith('command: ended with exit status 3 {"id": "notice-')
    printed = command.run("notice", "list").output
    assert "endpoint_gone" in printed
    tried = command.run("notice", "test", "--why", "new receiver")
    assert tried.exit_code == 1
    assert tried.stdout.splitlines()[0].startswith("url: answered 200 in ")
    assert tried.stdout.splitlines()[1].startswith("command: ended with exit status 3: {")
    assert tried.stderr == "webhooks: no notice reaches the command\n"
    assert [json.loads(each.body)["kind"] for each in receiver.requests] == ["endpoint_gone", "test"]
    (line,) = [each for each in parts.audit().latest(9).items if "notice" in each.what]
    assert (line.what, line.why) == ("test of notices to url, command", "new receiver")
    assert "CANARY" not in printed + tried.output + json.dumps(listed)


def test_a_long_list_goes_on(system: System) -> None:
    """Behind a notice, in the order in which they were noted."""
    many_gone(5)
    page = watching.notices().latest(2)
    seen = [each.id for each in page.items]
    while page.next is not None:
        page = watching.notices().latest(2, page.next)
        seen += [each.id for each in page.items]
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 5
    assert command.refused("notice", "list", "--after", "77") == "webhooks: no notice 77; see: webhooks notice list"
    assert command.done("notice", "list", "--after", str(seen[-1])) == []


def test_trying_without_a_recipient_says_what_to_set(system: System) -> None:
    """In one line."""
    assert "set WEBHOOKS_NOTICE_URL, WEBHOOKS_NOTICE_COMMAND or" in command.refused("notice", "test")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"notice_url": "http://ops.test/PWCANARY"}, "WEBHOOKS_NOTICE_URL: url: must begin with https://"),
        ({"notice_command": "no-such-program PWCANARY"}, "WEBHOOKS_NOTICE_COMMAND: there is no such program"),
        ({"notice_command": "sh 'PWCANARY"}, "WEBHOOKS_NOTICE_COMMAND: its quotation marks do not fit together"),
        ({"notice_command": "  "}, "WEBHOOKS_NOTICE_COMMAND: there is no such program"),
        ({"notice_mail": "ops PWCANARY"}, "WEBHOOKS_NOTICE_MAIL: an address is such as ops@example.com"),
        ({"notice_smtp": "mail.test:PWCANARY"}, "WEBHOOKS_NOTICE_SMTP: it is not a mail server's URL"),
    ],
)
def test_a_recipient_that_cannot_be_is_one_line_at_start(system: System, settings: dict[str, str], line: str) -> None:
    """Which says what is wrong, and repeats nothing that may be a secret."""
    system.set(**settings)
    with pytest.raises(SettingsError) as refused:
        watching.notice_recipients()
    assert str(refused.value).startswith(line)
    assert "PWCANARY" not in str(refused.value)


BY_HELD, BY_END = "deliveries_(held|to_probe)", "deliveries_to_prune"  # indexes
LOOKS = {
    "_FAILED": ["deliveries_on_desk"],
    "_OPENED": [BY_HELD],
    "_ONLY_THESE": [BY_HELD],
    "_RIPEN": [BY_HELD, BY_END],
    "_GONE": [BY_HELD, BY_END],
    "_WAITING": [],
}


def test_a_minutes_look_reads_no_whole_table(system: System) -> None:
    """Whatever there is: indexes lead to what has failed lately and to what is held for an endpoint."""
    system.sql("""
        INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, reason, held_for, due_at,
            accepted_at, expires_at, finished_at)
        SELECT 'evt-' || n, 'evt-' || n, 'm-' || n % 1001, 'm-' || n % 1001, 'x', true, state,
            CASE state WHEN 'failed' THEN 'rejected' END, CASE state WHEN 'held' THEN 'breaker' END, now(), now(),
            now(), CASE WHEN state <> 'held' THEN now() - n * interval '10 minutes' END
        FROM (SELECT n, (ARRAY['held', 'failed', 'delivered', 'delivered'])[n % 4 + 1] AS state
            FROM generate_series(1, 20000) AS n) AS all_of_them
    """)
    system.sql("ANALYZE deliveries")
    values = {"rest": timedelta(days=1), "after": timedelta(days=1), "ids": ["m-1"], "sinces": [None]}
    for name, indexes in LOOKS.items():
        asked = getattr(noticing, name).text
        used = {each: value for each, value in values.items() if f":{each} " in asked}
        plan = "\n".join(row[0] for row in system.sql(f"EXPLAIN {asked}", **used))
        assert "Seq Scan on deliveries" not in plan, plan
        assert [index for index in indexes if not re.search(index, plan)] == [], plan


def test_what_has_failed_is_read_once_for_many_notices(system: System) -> None:
    """And not for each endpoint that has become one, or a bad day would be the day on which nobody is told."""
    many_gone(20)
    system.sql("DELETE FROM notices")
    failed_at_once(system, 1000, "m-1", money=False)
    system.sql("ANALYZE deliveries")
    names = [f"m-{number}" for number in range(20)]
    Noticing(parts.database()).opened(dict.fromkeys(names, datetime.now(UTC) - timedelta(days=2)))
    values = {"rest": timedelta(days=1), "after": timedelta(), "ids": names}
    for name in ("_RIPEN", "_GONE"):
        asked = getattr(noticing, name).text
        used = {each: value for each, value in values.items() if f":{each} " in asked}
        ((told,),) = system.sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked}", **used)
        looks = [each for each in nodes(told[0]["Plan"]) if "failed" in each.get("Index Cond", "")]
        assert [each["Actual Loops"] for each in looks] == [1], told
    assert {(each.endpoint_id, each.failed) for each in notices() if each.failed} == {("m-1", 1000)}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a plan's nodes."""
    yield plan
    for each in plan.get("Plans", []):
        yield from nodes(each)
