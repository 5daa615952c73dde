"""What an answer means (rules, part 2): the status line decides, whatever the body does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from webhooks.model import Answer, Outcome, Refusal, Silence

TOO_MANY_REQUESTS = 429
SERVICE_UNAVAILABLE = 503
MOST_A_CLOCK_IS_OFF = timedelta(days=1)  # a wrong time zone is; an answer out of an old cache is not read by its date

_BY_CLASS = {2: Outcome.DELIVERED, 4: Outcome.REJECTED, 5: Outcome.UNAVAILABLE}  # all others lead nowhere


def meaning(result: Answer | Silence | Refusal) -> Outcome:
    """Name what came of an attempt."""
    match result:
        case Answer(status=status):
            return _meaning_of_status(status)
        case Silence(ours=True):
            return Outcome.UNKNOWN
        case Silence():
            return Outcome.UNAVAILABLE
        case Refusal():
            return Outcome.UNSENDABLE


def _meaning_of_status(status: int) -> Outcome:
    if status == TOO_MANY_REQUESTS:
        return Outcome.THROTTLED
    return _BY_CLASS.get(status // 100, Outcome.MISDIRECTED)


def requested_wait(result: Answer | Silence | Refusal, now: datetime, cap: timedelta) -> timedelta:
    """Return how long a 429 or 503 asks us to wait by `Retry-After`: at most `cap`, and zero when it says nothing.

    Seconds and HTTP dates are understood; nonsense, the past and negative numbers count as silence. A date is one of
    the merchant's clock, so it is read against the answer's own `Date`, and only without a plausible one against ours.
    """
    if not isinstance(result, Answer) or result.status not in {TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE}:
        return timedelta()
    text = (result.retry_after or "").strip()
    by_seconds = text.isascii() and text.isdigit()
    wait = _from_seconds(text, cap) if by_seconds else _from_date(text, _sent_at(result.date, now))
    return min(max(wait, timedelta()), cap)


def _from_seconds(digits: str, cap: timedelta) -> timedelta:
    # Ten digits are three centuries: more would overflow timedelta, and the cap is what they come to anyway.
    significant = digits.lstrip("0") or "0"
    return cap if len(significant) > 9 else timedelta(seconds=int(significant))  # noqa: PLR2004


def _from_date(text: str, now: datetime) -> timedelta:
    moment = _moment(text)
    return moment - now if moment else timedelta()


def _sent_at(date: str | None, now: datetime) -> datetime:
    """Return the answer's `Date`, which a clock that is set wrong moves as much as `Retry-After`; else our `now`."""
    moment = _moment(date or "")
    return moment if moment and abs(moment - now) <= MOST_A_CLOCK_IS_OFF else now


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        # RFC 9110: HTTP dates are UTC, also where the zone is missing.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
