"""Messages that could not be published after all, told in one statement however many they are."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Update, tuple_, update

from webhooks.ledger.statements import NOT_QUEUED
from webhooks.ledger.tables import deliveries
from webhooks.model import Message, State


def unpublished(messages: Sequence[Message]) -> Update:
    """Say that no message is on its way, where it is still their turn: the sweep publishes what is due."""
    return (
        update(deliveries)
        .where(
            tuple_(deliveries.c.id, deliveries.c.turn).in_([(message.id, message.turn) for message in messages]),
            deliveries.c.state == State.PENDING,
            deliveries.c.sending_since.is_(None),
        )
        .values(**NOT_QUEUED)
    )
