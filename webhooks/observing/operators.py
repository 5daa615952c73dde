"""What operators do by hand, who of them comes and goes, and what becomes of notices to them, as facts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from webhooks.observing.facts import Fact


class NoticeKind(StrEnum):
    """What operators are told without having asked."""

    PAUSED = "endpoint_paused"  # its breaker has stayed open for WEBHOOKS_NOTICE_AFTER
    GONE = "endpoint_gone"  # it answered 410
    FAILED = "money_failed"  # the first money event of its merchant for a day has failed


class RecipientName(StrEnum):
    """What notices are sent to."""

    URL = "url"
    COMMAND = "command"
    MAIL = "mail"


@dataclass(frozen=True, slots=True)
class Acted(Fact):
    """An act, and its line in the audit, count; told where it was done. `deliveries`: how many it concerned."""

    name = "operator.acted"
    who: str
    what: str
    why: str | None
    deliveries: int | None


@dataclass(frozen=True, slots=True)
class LoggedIn(Fact):
    """An operator has begun a session of the dashboard; `origin` is the network address that asked."""

    name = "operator.logged_in"
    who: str
    origin: str


@dataclass(frozen=True, slots=True)
class LoginFailed(Fact):
    """It was not the operator's password. `who` is None where no operator has that name: people type passwords there.

    `waits`: for how long nobody may try again from there, or by that name.
    """

    name = "operator.login_failed"
    who: str | None
    origin: str
    waits: timedelta | None


@dataclass(frozen=True, slots=True)
class LoggedOut(Fact):
    """An operator has ended a session of the dashboard."""

    name = "operator.logged_out"
    who: str
    origin: str


@dataclass(frozen=True, slots=True)
class NoticeSent(Fact):
    """A notice has reached a recipient; `summed_up`: together with so many others."""

    name = "notice.sent"
    notice_id: int
    kind: NoticeKind
    merchant_id: str
    endpoint_id: str | None
    recipient: RecipientName
    summed_up: int


@dataclass(frozen=True, slots=True)
class RecipientAway(Fact):
    """What notices are sent to takes none; told once until it does."""

    name = "notice.recipient_away"
    recipient: RecipientName
    why: str


@dataclass(frozen=True, slots=True)
class RecipientBack(Fact):
    """It takes notices again."""

    name = "notice.recipient_back"
    recipient: RecipientName


@dataclass(frozen=True, slots=True)
class NoticesStopped(Fact):
    """Notices were not noted or not sent; told once until they are."""

    name = "notice.stopped"
    why: str
