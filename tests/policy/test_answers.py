"""What an answer means, and how long it asks us to wait."""

from datetime import UTC, datetime, timedelta

import pytest

from webhooks.model import Answer, Outcome, Refusal, Silence
from webhooks.policy.answers import meaning, requested_wait

NOW = datetime(2026, 3, 29, 0, 59, tzinfo=UTC)  # a minute before Europe's clocks change
CAP = timedelta(hours=1)


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ([200, 201, 202, 204, 226, 299], Outcome.DELIVERED),
        ([500, 501, 502, 503, 504, 511, 521, 599], Outcome.UNAVAILABLE),
        ([429], Outcome.THROTTLED),
        ([400, 401, 403, 404, 408, 409, 410, 413, 421, 425, 428, 430, 451, 499], Outcome.REJECTED),
        ([300, 301, 302, 303, 304, 307, 308, 399], Outcome.MISDIRECTED),
        ([101, 199, 600, 700, 999], Outcome.MISDIRECTED),  # any final status not named
    ],
)
def test_status_decides(statuses: list[int], outcome: Outcome) -> None:
    """Each class of status has one meaning."""
    assert {meaning(Answer(status)) for status in statuses} == {outcome}


def test_silence_is_unavailable() -> None:
    """No answer in time counts as unavailable."""
    assert meaning(Silence("timeout: headers")) is Outcome.UNAVAILABLE


def test_a_silence_of_our_making_is_unknown() -> None:
    """This machine failed with the request out: the merchant may have it, and is not charged."""
    assert (
        meaning(Silence("network: ENETDOWN on this machine, after the request was sent", ours=True)) is Outcome.UNKNOWN
    )


def test_refused_address_is_unsendable() -> None:
    """What our own guard refuses was never sent."""
    assert meaning(Refusal("address: private network")) is Outcome.UNSENDABLE


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("0", 0),
        ("0000000000000120", 120),
        ("3600", 3600),
        ("3601", 3600),  # capped
        ("99999999999999999999", 3600),
        ("9" * 5000, 3600),
        ("Sun, 29 Mar 2026 01:01:00 GMT", 120),
        ("Sun, 29 Mar 2026 01:01:00", 120),  # no zone: HTTP dates are UTC
        ("Sun, 29 Mar 2026 03:01:00 +0200", 120),
        ("Mon, 29 Mar 2027 01:01:00 GMT", 3600),
        ("Sat, 28 Mar 2026 01:01:00 GMT", 0),  # the past
        ("-5", 0),
        ("1.5", 0),
        ("1e9", 0),
        ("+5", 0),
        ("abc", 0),
        ("", 0),
        (None, 0),
        ("120, 240", 0),
        ("\u0661\u0662", 0),  # Arabic digits
        ("Sun, 99 Mar 2026 01:01:00 GMT", 0),
        ("Sun, 29 Mar 99999999 01:01:00 GMT", 0),
    ],
)
def test_retry_after(header: str | None, seconds: int) -> None:
    """Seconds and dates are understood and capped; nonsense, the past and negatives count as silence."""
    assert requested_wait(Answer(429, retry_after=header), NOW, CAP) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("date", "retry_after", "seconds"),
    [
        ("Sun, 29 Mar 2026 01:59:00 GMT", "Sun, 29 Mar 2026 02:01:00 GMT", 120),  # an hour ahead of us
        ("Sun, 29 Mar 2026 00:29:00 GMT", "Sun, 29 Mar 2026 00:31:00 GMT", 120),  # half an hour behind
        ("Sun, 29 Mar 2026 02:59:00 +0200", "Sun, 29 Mar 2026 01:01:00 GMT", 120),
        ("Mon, 30 Mar 2026 00:59:00 GMT", "Mon, 30 Mar 2026 01:01:00 GMT", 120),  # a day is still a clock
        ("Mon, 30 Mar 2026 00:59:01 GMT", "Sun, 29 Mar 2026 01:01:00 GMT", 120),  # more is not: ours counts
        ("Thu, 01 Jan 1970 00:00:00 GMT", "Sun, 29 Mar 2026 01:01:00 GMT", 120),
        ("nonsense", "Sun, 29 Mar 2026 01:01:00 GMT", 120),
        ("Sun, 29 Mar 99999999 01:01:00 GMT", "Sun, 29 Mar 2026 01:01:00 GMT", 120),
        ("Sat, 01 Jan 0001 00:00:00 +2359", "Sun, 29 Mar 2026 01:01:00 GMT", 120),
        ("", "Sun, 29 Mar 2026 01:01:00 GMT", 120),
        ("Sun, 29 Mar 2026 01:59:00 GMT", "Sun, 29 Mar 2026 01:01:00 GMT", 0),  # by its own clock it is over
        ("Sun, 29 Mar 2026 01:59:00 GMT", "120", 120),  # seconds need no clock
    ],
)
def test_a_retry_after_date_is_of_the_merchants_clock(date: str, retry_after: str, seconds: int) -> None:
    """It is read against the answer's own `Date` where that can be a clock's, and against ours where not."""
    answer = Answer(503, retry_after=retry_after, date=date)
    assert requested_wait(answer, NOW, CAP) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("status", "heard"), [(429, True), (503, True), (500, False), (404, False), (200, False)])
def test_who_may_ask_us_to_wait(status: int, heard: bool) -> None:
    """`Retry-After` is heard on 429 and 503 only."""
    assert bool(requested_wait(Answer(status, retry_after="60"), NOW, CAP)) is heard


def test_silence_asks_for_nothing() -> None:
    """Without an answer there is no `Retry-After`."""
    assert requested_wait(Silence("refused"), NOW, CAP) == timedelta()
