"""How a delivery's task ends, in the words that Flower shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from celery.utils.saferepr import saferepr

from webhooks.celery.endings import Ending, ending_of, read
from webhooks.delivery import Made, Moved, SetAside
from webhooks.model import Attempt, HeldFor, Ladder, Outcome, Reason
from webhooks.policy.decisions import Delivered, Failed, RetryAt

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ANSWERED = Attempt(3, NOON, timedelta(milliseconds=84), Outcome.DELIVERED, status=200)
UNAVAILABLE = replace(ANSWERED, number=2, outcome=Outcome.UNAVAILABLE, status=503)
SILENT = replace(UNAVAILABLE, status=None, cause="timeout: no answer within 10 s", duration=timedelta(seconds=10))
SOON = RetryAt(NOON + timedelta(seconds=30, milliseconds=84), Ladder.FAST)
LATER = RetryAt(NOON + timedelta(seconds=10, hours=12), Ladder.SLOW)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Made(ANSWERED, Delivered()), "SUCCESS delivered 200 in 84 ms, attempt 3"),
        (Made(UNAVAILABLE, SOON), "RETRY 503 after 84 ms; attempt 3 in 30 s, at 2026-01-31 12:00:30 UTC"),
        (
            Made(SILENT, LATER),
            "RETRY timeout: no answer within 10 s after 10 s; attempt 3 in 12 h, at 2026-02-01 00:00:10 UTC",
        ),
        (
            Made(replace(UNAVAILABLE, number=10), Failed(Reason.FAST_EXHAUSTED)),
            "FAILURE fast_exhausted: 503 after 84 ms, attempt 10",
        ),
        (Failed(Reason.CANCELLED), "FAILURE cancelled"),
        (Moved(), "RETRY in the queue of the slow endpoints"),
        (SetAside(HeldFor.ADDRESS), "RETRY held for address"),
        (SetAside(HeldFor.BREAKER), "RETRY held for breaker"),
        (SetAside(HeldFor.BREAKER, NOON), "RETRY held for breaker until 2026-01-31 12:00:00 UTC"),
        (SetAside(None), "IGNORED "),
    ],
)
def test_an_ending_in_words(result: Made | Failed | SetAside | Moved, expected: str) -> None:
    """What came of it, what it waits for, and until when; read again from the text that Celery makes of it."""
    ending = ending_of(result)
    assert saferepr(ending, 1024) == expected
    assert read(expected) == ending


@pytest.mark.parametrize("text", ["None", "'delivered'", "SUCCESSFUL", ""])
def test_another_tasks_result_is_no_ending(text: str) -> None:
    """So whoever shows it leaves it as it is."""
    assert read(text) is None


def test_words_are_one_line_that_is_cut_and_never_another_state() -> None:
    """Whatever a merchant's answer brings into them stands behind the state."""
    ending = Ending("RETRY", "redirects to SUCCESS delivered " + "x" * 5000)
    found = read(saferepr(ending, 1024))
    assert found
    assert (found.state, len(found.words) < 1100) == ("RETRY", True)
