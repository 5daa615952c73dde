"""What a notice says, and that what it tells to type can be typed."""

from __future__ import annotations

import json
import shlex

import click
import pytest

from tests.telling.notices import NOON, notice
from webhooks.cli import main
from webhooks.observing.operators import NoticeKind
from webhooks.telling.wording import command_for, compose, trial


def test_programs_and_people_get_the_same() -> None:
    """Which endpoint, since when, how much waits, and what to type."""
    notification = compose([notice(NoticeKind.PAUSED)], NOON)
    assert (notification.id, notification.subject) == ("notice-7", "an endpoint does not answer: acme")
    told = json.loads(notification.body)
    assert told.pop("text") + "\n\n" + told["do"] == notification.text
    assert told == {
        "id": "notice-7",
        "kind": "endpoint_paused",
        "merchant_id": "acme",
        "endpoint_id": "ep_books",
        "host": "books.acme.example",
        "since": "2026-01-31T12:00:00Z",
        "noted_at": "2026-01-31T12:00:00Z",
        "held": 120,
        "failed": 3,
        "do": "webhooks breaker show ep_books",
    }
    for word in ("ep_books", "acme", "books.acme.example", "2026-01-31T12:00:00Z", "120 deliveries are held"):
        assert word in notification.text


@pytest.mark.parametrize("kind", NoticeKind)
@pytest.mark.parametrize("merchant_id", ["acme", 'it\'s $(mine) & "yours"'])
def test_what_it_says_to_type_can_be_typed(kind: NoticeKind, merchant_id: str) -> None:
    """Each command is one that there is, with its options, and a merchant's name is one word in it for every shell."""
    program, *words = shlex.split(command_for(notice(kind, merchant_id=merchant_id, endpoint_id=None)))
    assert program == "webhooks"
    assert merchant_id in words
    context = main.make_context("webhooks", words)
    while isinstance(group := context.command, click.Group):
        name, command, words = group.resolve_command(context, [*context._protected_args, *context.args])
        assert command
        context = command.make_context(name, words, parent=context)
    assert merchant_id in context.params.values()


def test_a_summary_names_as_many_as_can_be_read() -> None:
    """And says how many there are."""
    kinds = list(NoticeKind)
    some = [notice(kinds[each % 3], id_=9 + each, merchant_id=f"m-{each}") for each in range(60)]
    told = json.loads(compose(some, NOON).body)
    assert (told["id"], told["kind"], told["number"], len(told["notices"])) == ("notice-9", "summary", 60, 50)
    assert told["text"].startswith("60 notices")
    assert told["text"].endswith("… and 10 more")
    assert told["do"] == "webhooks notice list --limit 60"
    assert "m-49" in told["text"]


def test_a_trial_says_that_it_is_one() -> None:
    """Nobody is to be woken by it."""
    assert json.loads(trial(NOON).body)["kind"] == "test"
