"""Events are found by fields of their bodies, whichever way they were accepted."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg2
import pytest

from tests.system import System
from webhooks import EventConflict, deliver, parts, record, record_many
from webhooks.accepting import reading

EVENT = {"type": "refund.completed", "merchant_id": "acme"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"payment_id": "pay_1"}, {("payment_id", "pay_1")}),
        ({"payment_id": 17, "external_id": "A/1"}, {("payment_id", "17"), ("external_id", "A/1")}),
        ({"external_id": True, "payment_id": 1.5}, set()),
        ({"payment_id": {"id": "pay_1"}, "other": "x"}, set()),
        ({"payment_id": "", "external_id": None}, set()),
        ({"payment_id": "p" * 201, "external_id": "a\0b"}, set()),
    ],
)
def test_texts_and_integers_of_the_body_itself_are_keys(fields: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    """Nothing else is, and nothing that is no key is refused for it."""
    event = reading.read({**EVENT, **fields}, ("payment_id", "external_id"))
    assert set(event.keys) == expected


def found(value: str) -> set[tuple[str, str]]:
    """Return the deliveries that are found, and by which field."""
    return {(each.delivery.id, each.field) for each in parts.views().find(value, 10)}


def test_an_event_is_found_however_it_was_accepted(system: System, database_url: str) -> None:
    """Alone, among many, by name, and in a transaction of a producer's own; one of many in its endpoints, too."""
    given = {**EVENT, "payment_id": "pay_1"}
    deliver.delay({**given, "id": "alone"})
    deliver.many([{**given, "id": "many-1"}, {**given, "id": "many-2", "payment_id": "pay_2", "external_id": "pay_1"}])
    parts.accepting().accept_by_name(given, "named")
    with closing(psycopg2.connect(database_url)) as connection:
        record(connection, {**given, "id": "guest"})
        record_many(connection, [{**given, "id": "guest-1"}, {**given, "id": "guest-2"}])
        connection.commit()
        record(connection, {**given, "id": "undone"})
        connection.rollback()
    by_payment = {"alone", "many-1", "named", "guest", "guest-1", "guest-2"}
    assert found("pay_1") == {(each, "payment_id") for each in by_payment} | {("many-2", "external_id")}
    assert found("many-2") == {("many-2", "id")}
    assert found("refund.completed") == set()


def test_the_same_event_again_is_found_once(system: System) -> None:
    """It was accepted before, and nothing is written."""
    for _ in range(2):
        deliver.delay({**EVENT, "id": "evt-1", "payment_id": "pay_1"})
    assert [each.delivery.id for each in parts.views().find("pay_1", 10)] == ["evt-1"]
    assert len(system.sql("SELECT FROM event_keys")) == 1


def test_what_a_guest_takes_back_is_not_found(system: System, database_url: str) -> None:
    """One of several stands for another body: none is accepted, whatever the producer commits besides."""
    deliver.delay({**EVENT, "id": "evt-2"})
    with closing(psycopg2.connect(database_url)) as connection:
        with pytest.raises(EventConflict):
            record_many(connection, [{**EVENT, "id": each, "payment_id": "pay_1"} for each in ("evt-1", "evt-2")])
        connection.commit()
    assert system.sql("SELECT FROM event_keys") == []


def test_which_fields_are_keys_is_a_setting(system: System) -> None:
    """It counts for what is accepted from then on."""
    system.set(keys="order")
    deliver.delay({**EVENT, "id": "evt-1", "payment_id": "pay_1", "order": 7})
    assert found("7") == {("evt-1", "order")}
    assert found("pay_1") == set()
