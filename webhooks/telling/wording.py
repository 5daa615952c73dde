"""What a notice says: as JSON for programs, as a few sentences for people, and what to do about it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from webhooks.ledger.notices import NoticeRow
from webhooks.observing.operators import NoticeKind

_MOST_LISTED = 50  # notices that one message names


@dataclass(frozen=True, slots=True)
class Notification:
    """One message to operators. `at` is the ledger's time when it is sent."""

    id: str
    at: datetime
    subject: str
    told: dict[str, Any]

    @property
    def body(self) -> bytes:
        """What programs get."""
        return json.dumps(self.told).encode()

    @property
    def text(self) -> str:
        """What people get."""
        return "\n\n".join(filter(None, (self.told["text"], self.told.get("do"))))


def compose(notices: Sequence[NoticeRow], at: datetime) -> Notification:
    """Write one notice, or sum up several."""
    if len(notices) > 1:
        return _summary(notices, at)
    (notice,) = notices
    return Notification(_name(notice), at, f"{_subject(notice)}: {notice.merchant_id}", _told(notice))


def trial(at: datetime) -> Notification:
    """Write a notice that says nothing but that it came."""
    text = "This is a test: notices of the webhook delivery worker reach you."
    told = {"id": "notice-test", "kind": "test", "text": text}
    return Notification("notice-test", at, "a test", told)


def _summary(notices: Sequence[NoticeRow], at: datetime) -> Notification:
    name = _name(min(notices, key=lambda each: each.id))
    listed = [_told(each) for each in notices[:_MOST_LISTED]]
    more = len(notices) - len(listed)
    lines = [f"{len(notices)} notices, more than are sent one by one:", *(each["text"] for each in listed)]
    told = {
        "id": name,
        "kind": "summary",
        "number": len(notices),
        "notices": listed,
        "text": "\n\n".join([*lines, *([f"… and {more} more"] if more else [])]),
        "do": f"webhooks notice list --limit {len(notices)}",
    }
    return Notification(name, at, f"{len(notices)} notices", told)


def _told(notice: NoticeRow) -> dict[str, Any]:
    return {
        "id": _name(notice),
        "kind": notice.kind.value,
        "merchant_id": notice.merchant_id,
        "endpoint_id": notice.endpoint_id,
        "host": notice.host,
        "since": _moment(notice.since),
        "noted_at": _moment(notice.noted_at),
        "held": notice.held,
        "failed": notice.failed,
        "text": _text(notice),
        "do": command_for(notice),
    }


def command_for(notice: NoticeRow) -> str:
    """Return what to type in order to see more."""
    merchant, endpoint = shlex.quote(notice.merchant_id), shlex.quote(notice.endpoint_id or notice.merchant_id)
    match notice.kind:
        case NoticeKind.PAUSED:
            return f"webhooks breaker show {endpoint}"
        case NoticeKind.GONE:
            return f"webhooks endpoint show {endpoint}"
        case NoticeKind.FAILED:
            return f"webhooks failed list --merchant {merchant}"
        case _:
            assert_never(notice.kind)


def _subject(notice: NoticeRow) -> str:
    match notice.kind:
        case NoticeKind.PAUSED:
            return "an endpoint does not answer"
        case NoticeKind.GONE:
            return "an endpoint is gone"
        case NoticeKind.FAILED:
            return "money events failed"
        case _:
            assert_never(notice.kind)


def _text(notice: NoticeRow) -> str:
    where = f"Endpoint {notice.endpoint_id} of merchant {notice.merchant_id}"
    where += f" ({notice.host})" if notice.host else ""
    match notice.kind:
        case NoticeKind.PAUSED:
            return (
                f"{where} does not answer: its breaker has been open since {_moment(notice.since)}, and {notice.held} "
                "deliveries are held for it. It goes on being probed, and gets them once it answers. Tell the merchant."
            )
        case NoticeKind.GONE:
            return (
                f"{where} answers 410 Gone. Nothing was switched off: what comes for it is sent all the same. Ask the "
                "merchant for a new address, or pause or remove the endpoint."
            )
        case NoticeKind.FAILED:
            return (
                f"Money events of merchant {notice.merchant_id} have FAILED and need a person: {notice.failed} in the "
                f"last day, the first at {_moment(notice.since)}. No other notice of them comes for a day."
            )
        case _:
            assert_never(notice.kind)


def _name(notice: NoticeRow) -> str:
    return f"notice-{notice.id}"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
