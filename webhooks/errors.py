"""One tree of errors, grouped by what the catcher does next.

WebhooksError
├── Refused                 the caller's mistake: say it, change nothing
│   ├── SettingsError       a setting is missing or malformed (exit 2)
│   ├── InvalidEvent        the event breaks a rule; the text names the field
│   ├── EventConflict       the id is taken by another body
│   ├── InvalidAddress      a merchant's URL that must not be used
│   ├── InvalidHeader       an endpoint's own header that must not be sent
│   └── NotPossible         an operator's command that does not fit what is there
├── LedgerFault             a fault of ours that trying again does not mend: a privilege, a constraint, a row's data
└── Unavailable             a fault of ours: spends no budget, tried again
    ├── LedgerUnavailable   PostgreSQL cannot be reached or used
    │   ├── LedgerBusy      it is there, but this statement got no lock or took too long
    │   ├── AnswerLost      the connection broke under a statement: nobody knows whether it was done
    │   └── LedgerOutdated  its tables are missing or old: webhooks db upgrade
    ├── BrokerUnavailable   the broker cannot be reached
    ├── GateUnavailable     the Redis of the gate cannot be reached
    └── LocalFault          this machine cannot send: no CA file, no sockets, no resolver
"""

from __future__ import annotations


class WebhooksError(Exception):
    """Everything this package raises on purpose; `str()` is one line for a person.

    `accepted` is how many events of a call that brought many are accepted all the same, from the first on.
    """

    accepted = 0


class Refused(WebhooksError):
    """The caller asked for something that cannot be; nothing was changed."""


class SettingsError(Refused):
    """A setting is missing or malformed."""


class InvalidEvent(Refused, ValueError):
    """The event breaks a rule; the text names the field."""


class EventConflict(Refused):
    """The id was accepted before with another body. `ids` are those of all events of which that is so."""

    ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, *event_ids: str) -> EventConflict:
        """Say which ids they are."""
        verb = "was" if len(event_ids) == 1 else "were"
        error = cls(f"id: {', '.join(event_ids)} {verb} accepted before with another body; nothing was changed")
        error.ids = event_ids
        return error


class InvalidAddress(Refused, ValueError):
    """A merchant's URL that must not be used; the text says which rule it breaks."""


class InvalidHeader(Refused, ValueError):
    """A header of an endpoint's own that must not be sent; the text never quotes its value."""


class NotPossible(Refused):
    """An operator's command that does not fit what is there."""


class LedgerFault(WebhooksError):
    """PostgreSQL refuses a statement for good: a privilege, a constraint, the data of one row. It is no outage."""


class Unavailable(WebhooksError):
    """A fault of ours; it spends no merchant's budget and opens no breaker (I10).

    `told_once`: whoever found it tells of its begin and its end, so that those whom it hits need not.
    """

    told_once = False


class LedgerUnavailable(Unavailable):
    """PostgreSQL cannot be reached or used."""

    told_once = True


class LedgerBusy(LedgerUnavailable):
    """PostgreSQL is there, but a statement got no lock or connection, or took too long."""

    told_once = False


class AnswerLost(LedgerUnavailable):
    """The connection broke while a statement was under way: it was done, or it was not."""


class LedgerOutdated(LedgerUnavailable):
    """The ledger has no tables yet, or older ones than this release needs."""

    told_once = False


class BrokerUnavailable(Unavailable):
    """The broker cannot be reached."""


class GateUnavailable(Unavailable):
    """The Redis that holds the breakers cannot be reached."""


class LocalFault(Unavailable):
    """This machine cannot send: no CA file, no free sockets, no resolver."""
