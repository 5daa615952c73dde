"""The desk: noting something about what failed, dismissing and reopening it, and sending it again, also in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from webhooks import parts
from webhooks.ledger.acts import Act
from webhooks.ledger.desk import OnDesk
from webhooks.ledger.replays import Verdict
from webhooks.model import Operator
from webhooks.operating.deliveries import done, tell_replayed
from webhooks.operating.endpoints import check_note

_BATCH = 500  # deliveries of one transaction


def note(by: Operator, delivery_ids: Sequence[str], text: str) -> Sequence[Verdict]:
    """Write down something about deliveries, which count as seen from then on; say of each whether there is one.

    The text stands with the delivery, and the audit says that it was written. Raises NotPossible for one that is empty,
    too long, or can't be printed.
    """
    check_note(text)
    with parts.act(by, "it was noted", "webhooks delivery show ID") as act:
        verdicts = parts.desk().within(act).note(by.name, delivery_ids, text)
        act.note_deliveries("note on", done(verdicts))
    return verdicts


def dismiss(by: Operator, delivery_ids: Sequence[str]) -> Sequence[Verdict]:
    """Take deliveries off the desk, as dealt with; each stays failed (I8). Say of each whether it was on it."""
    return _act(by, delivery_ids, _dismissal(by))


def dismiss_all(by: Operator, wanted: OnDesk) -> Iterator[Sequence[Verdict]]:
    """Dismiss what of the wanted is on the desk by now, batch by batch; each counts once it is yielded."""
    return _in_batches(by, wanted, _dismissal(by))


def reopen(by: Operator, delivery_ids: Sequence[str]) -> Sequence[Verdict]:
    """Put dismissed deliveries back on the desk: they were not dealt with. Say of each whether it was dismissed."""
    return _act(by, delivery_ids, _reopening(by))


def replay(by: Operator, delivery_ids: Sequence[str]) -> Sequence[Verdict]:
    """Send failed deliveries again, and say of each whether that was possible."""
    return _act(by, delivery_ids, _RESEND)


def replay_all(by: Operator, wanted: OnDesk) -> Iterator[Sequence[Verdict]]:
    """Send again what of the wanted is on the desk by now, batch by batch; each counts once it is yielded.

    What was dismissed is left alone, though it failed for the same reason.
    """
    return _in_batches(by, wanted, _RESEND)


@dataclass(frozen=True, slots=True)
class _Deed:
    """What is done to deliveries on the desk, and how the audit and a lost answer speak of it."""

    do: Callable[[Act, Sequence[str]], Sequence[Verdict]]
    line: str
    unsure: str
    then: Callable[[Sequence[str]], None] = lambda _: None  # with those to which it was done, once that counts


def _dismissal(by: Operator) -> _Deed:
    text = _with_reason("dismissed", by)

    def dismiss_them(act: Act, delivery_ids: Sequence[str]) -> Sequence[Verdict]:
        return parts.desk().within(act).dismiss(by.name, delivery_ids, text)

    return _Deed(dismiss_them, "dismissal of", "they were dismissed")


def _reopening(by: Operator) -> _Deed:
    text = _with_reason("reopened", by)

    def reopen_them(act: Act, delivery_ids: Sequence[str]) -> Sequence[Verdict]:
        return parts.desk().within(act).reopen(by.name, delivery_ids, text)

    return _Deed(reopen_them, "reopening of", "they were reopened")


def _with_reason(what: str, by: Operator) -> str:
    return f"{what}: {by.why}" if by.why else what


def _replay_them(act: Act, delivery_ids: Sequence[str]) -> Sequence[Verdict]:
    return parts.replays().within(act).replay(delivery_ids, again=False)


_RESEND = _Deed(_replay_them, "replay of", "they are being sent again", tell_replayed)


def _act(
    by: Operator, delivery_ids: Sequence[str], deed: _Deed, look: str = "webhooks delivery show ID"
) -> Sequence[Verdict]:
    with parts.act(by, deed.unsure, look) as act:
        verdicts = deed.do(act, delivery_ids)
        act.note_deliveries(deed.line, done(verdicts))
    deed.then(done(verdicts))
    return verdicts


def _in_batches(by: Operator, wanted: OnDesk, deed: _Deed) -> Iterator[Sequence[Verdict]]:
    """Go through what has failed by now: what fails again meanwhile is not taken twice."""
    wanted, after = replace(wanted, failed_before=parts.replays().now(), all=False), None
    while True:
        page = parts.desk().deliveries(wanted, _BATCH, after)
        if page.items:
            yield _act(by, [each.id for each in page.items], deed, "webhooks audit")
        if page.next is None:
            return
        after = page.next
