"""`webhooks failed`: a person at the desk."""

from __future__ import annotations

import getpass

import pytest

from tests.command import done, refused, run
from tests.system import System
from webhooks import deliver
from webhooks.model import Reason
from webhooks.operating import desk


def fail(
    system: System, *delivery_ids: str, merchant_id: str = "acme", reason: Reason = Reason.REJECTED, money: bool = False
) -> None:
    """Have deliveries be failed, without a worker."""
    for delivery_id in delivery_ids:
        event = {"type": "refund.completed" if money else "kyc.status_changed", "merchant_id": merchant_id}
        deliver.delay({**event, "id": delivery_id})
        system.sql(
            "UPDATE deliveries SET state = 'failed', reason = :reason, finished_at = now(), sweep_at = NULL"
            " WHERE id = :id",
            id=delivery_id,
            reason=reason,
        )


def on_desk() -> list[str]:
    """Return the ids of what is on the desk."""
    return [each["id"] for each in done("failed", "list")["deliveries"]]


def test_the_desk_in_one_look(system: System) -> None:
    """It says how many failed, money and unseen, and lists the groups, money first, each with one of it."""
    fail(system, "plain-1", "plain-2", merchant_id="bolt")
    fail(system, "paid", money=True, reason=Reason.SLOW_EXHAUSTED)
    system.sql(
        "INSERT INTO attempts (delivery_id, number, started_at, outcome, status)"
        " VALUES ('paid', 1, now(), 'rejected', 422)"
    )
    shown = run("failed").stdout
    assert shown.startswith("3 failed: 1 of them money, 3 seen by nobody\n")
    assert shown.index("slow_exhausted") < shown.index("rejected")
    told = done("failed")
    assert (told["open"], told["money"], told["by_reason"]) == (3, 1, {"slow_exhausted": 1, "rejected": 2})
    assert [(group["merchant_id"], group["number"], group["status"]) for group in told["groups"]] == [
        ("acme", 1, 422),
        ("bolt", 2, None),
    ]


def test_an_empty_desk_says_so(system: System) -> None:
    """To a person and to a program."""
    assert run("failed").stdout == "nothing failed that nobody has dealt with\n"
    assert done("failed")["groups"] == []


def test_the_list_goes_on(system: System) -> None:
    """A page names the place behind which the next one begins, with the same options."""
    fail(system, "evt-1", "evt-2", "evt-3")
    first = done("failed", "list", "--no-money", "--limit", "2")
    assert f"the next ones: --after {first['next']}\n" in run("failed", "list", "--limit", "2").stdout
    second = done("failed", "list", "--no-money", "--after", first["next"])
    assert [each["id"] for each in (*first["deliveries"], *second["deliveries"])] == ["evt-3", "evt-2", "evt-1"]
    assert second["next"] is None
    assert refused("failed", "list", "--after", "evt-1") == (
        "webhooks: that is no place in the list: give the one that the page before named"
    )


def test_a_note_is_kept_with_the_delivery(system: System) -> None:
    """`delivery show` tells who noted what; the audit tells that somebody did; from then on it counts as seen."""
    fail(system, "evt-1")
    result = run("failed", "note", "evt-1", "nothing", "--text", "called [them] 😀")
    assert (result.exit_code, result.stdout) == (1, "evt-1: noted\n")
    assert result.stderr == "nothing: there is no such delivery\n"
    (note,) = done("delivery", "show", "evt-1")["notes"]
    assert (note["who"], note["text"]) == (getpass.getuser(), "called [them] 😀")
    assert ": called [them] 😀\n" in run("delivery", "show", "evt-1").stdout
    listed = run("failed", "list").stdout
    assert (listed.count("┃ seen "), listed.count("┃ note "), listed.count("called [them] 😀")) == (1, 1, 1)
    (line,) = done("audit")
    assert (line["what"], line["why"], line["deliveries"]) == ("note on evt-1", None, 1)
    assert done("failed")["unseen"] == 0


@pytest.mark.parametrize("text", ["", " ", "a\nb", "x" * 501])
def test_what_is_no_note_is_refused(system: System, text: str) -> None:
    """It is empty, too long, or more than a line."""
    fail(system, "evt-1")
    assert refused("failed", "note", "evt-1", "--text", text) == "webhooks: a note has 1 to 500 printable characters"
    assert done("audit") == []


def test_a_group_is_dismissed(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one merchant and reason leave the desk, batch by batch, with a line of the audit each; others stay."""
    monkeypatch.setattr(desk, "_BATCH", 2)
    fail(system, "evt-1", "evt-2", "evt-3")
    fail(system, "other", reason=Reason.EXPIRED)
    fail(system, "bolts", merchant_id="bolt")
    result = run("failed", "dismiss", "--merchant", "acme", "--reason", "rejected", "--why", "by mail")
    assert (result.exit_code, result.stdout) == (0, "3 deliveries are dismissed\n")
    assert on_desk() == ["bolts", "other"]
    assert [(line["what"], line["why"]) for line in done("audit")] == [
        ("dismissal of evt-1", "by mail"),
        ("dismissal of evt-3, evt-2", "by mail"),
    ]
    told = done("delivery", "show", "evt-1")
    assert (told["state"], told["dismissed"], told["notes"][0]["text"]) == ("failed", True, "dismissed: by mail")
    assert {each["id"] for each in done("failed", "list", "--all")["deliveries"]} > {"evt-1", "evt-2", "evt-3"}
    again = run("failed", "dismiss", "--merchant", "acme", "--reason", "rejected", "--why", "by mail")
    assert (again.exit_code, again.stdout) == (0, "nothing of that is on the desk\n")


def test_a_group_is_sent_again_without_what_was_dismissed(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be sent is told, one by one, and holds up nothing behind it."""
    monkeypatch.setattr(desk, "_BATCH", 2)
    fail(system, "evt-1", "bodiless", "evt-2", "evt-3")
    run("failed", "dismiss", "evt-2", "--why", "paid by hand")
    system.sql("UPDATE events SET body = NULL WHERE id = 'bodiless'")
    result = run("failed", "replay", "--merchant", "acme", "--reason", "rejected", "--why", "fixed")
    assert (result.exit_code, result.stdout) == (1, "2 deliveries are being sent again\n")
    assert result.stderr.splitlines()[-1] == "bodiless: its body has been pruned"
    assert system.counted() == {"held": 2, "failed": 2}
    assert on_desk() == ["bodiless"]
    assert [line["what"] for line in done("audit")][:2] == ["replay of evt-1", "replay of evt-3"]


def test_single_ones_are_dismissed_and_sent_again(system: System) -> None:
    """Each by its id, with a word of what became of it; what is dismissed may be sent again all the same."""
    fail(system, "evt-1")
    assert run("failed", "dismiss", "evt-1", "--why", "x").stdout == "evt-1: dismissed\n"
    assert refused("failed", "dismiss", "evt-1", "--why", "x") == "evt-1: it was dismissed already"
    assert run("failed", "replay", "evt-1", "--why", "x").stdout == "evt-1: is being sent again\n"
    assert on_desk() == []


def test_what_was_dismissed_is_reopened(system: System) -> None:
    """It is on the desk again; the audit and the delivery's notes say who and why."""
    fail(system, "evt-1", "evt-2")
    run("failed", "dismiss", "evt-1", "--why", "paid by hand")
    result = run("failed", "reopen", "evt-1", "evt-2", "--why", "it was the other one")
    assert (result.exit_code, result.stdout) == (1, "evt-1: back on the desk\n")
    assert result.stderr == "evt-2: it was not dismissed\n"
    assert on_desk() == ["evt-2", "evt-1"]
    line = done("audit")[0]
    assert (line["what"], line["why"], line["deliveries"]) == ("reopening of evt-1", "it was the other one", 1)
    assert done("delivery", "show", "evt-1")["notes"][1]["text"] == "reopened: it was the other one"


@pytest.mark.parametrize("act", ["dismiss", "replay", "reopen"])
def test_a_reason_that_says_nothing_is_refused(system: System, act: str) -> None:
    """It would stand in the audit for ever."""
    fail(system, "evt-1")
    assert refused("failed", act, "evt-1", "--why", " ") == (
        "webhooks: --why is a reason for the audit: 1 to 500 printable characters"
    )
    assert on_desk() == ["evt-1"]


@pytest.mark.parametrize("act", ["dismiss", "replay"])
@pytest.mark.parametrize(
    "given", [(), ("--merchant", "acme"), ("--reason", "rejected"), ("evt-1", "--merchant", "acme")]
)
def test_a_group_is_named_whole_or_not_at_all(system: System, act: str, given: tuple[str, ...]) -> None:
    """Half a name would be another group, and nothing is done."""
    fail(system, "evt-1")
    assert refused("failed", act, *given, "--why", "x").startswith("webhooks: name deliveries, or a group ")
    assert on_desk() == ["evt-1"]
