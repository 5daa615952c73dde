"""Reading events: what is refused, and the bytes that stay."""

import datetime as dt
import json
from decimal import Decimal
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhooks.accepting.reading import MAX_BODY_BYTES, RefusedEvent, read
from webhooks.errors import InvalidEvent

BASE = {"id": "e-1", "type": "payment.status_changed", "merchant_id": "acme"}


class _Status(StrEnum):
    PAID = "paid"


class _Text(str, Enum):  # noqa: UP042 - as many code bases have it; its str() is its name
    PAID = "paid"
    TYPE = "payment.status_changed"
    ACME = "acme"


class _Own(str):
    """A text that has to be looked at."""

    __slots__ = ()


def _nested(depth: int) -> list[Any]:
    return [] if depth == 0 else [_nested(depth - 1)]


def _endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def test_body_is_the_event_as_given() -> None:
    """The body is compact UTF-8 JSON, with the keys in the order in which they were given."""
    event = read({**BASE, "name": "Zoë 🧾 日本", "list": [1, 2.5, None, True], "flat": {}})
    assert event.body.decode() == (
        '{"id":"e-1","type":"payment.status_changed","merchant_id":"acme",'
        '"name":"Zoë 🧾 日本","list":[1,2.5,null,true],"flat":{}}'
    )


def test_members_of_an_enumeration_stand_for_their_text() -> None:
    """Whether their `str()` is their value or, as for `(str, Enum)`, their name."""
    event = read({"id": _Text.ACME, "type": _Text.TYPE, "merchant_id": _Text.ACME, "status": _Text.PAID, _Text.PAID: 1})
    assert (event.id, event.type, event.merchant_id, event.money) == ("acme", "payment.status_changed", "acme", True)
    assert event.body == (
        b'{"id":"acme","type":"payment.status_changed","merchant_id":"acme","status":"paid","paid":1}'
    )


def test_missing_id_is_made() -> None:
    """Without an id one is made, which is also in the body; the caller's dict is left alone."""
    given_event = {"type": "kyc.status_changed", "merchant_id": "acme"}
    first, second = read(given_event), read(given_event)
    assert json.loads(first.body)["id"] == first.id != second.id
    assert "id" not in given_event


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Decimal("0.10"), '"0.10"'),
        (Decimal("1234567890.12"), '"1234567890.12"'),
        (Decimal("-0.00"), '"-0.00"'),
        (Decimal("1E-7"), '"0.0000001"'),
        (Decimal("1E+2"), '"100"'),
        (12345678901234567890, "12345678901234567890"),
        (1e-7, "1e-07"),
        (dt.date(2026, 1, 31), '"2026-01-31"'),
        (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), '"2026-01-31T12:00:00+00:00"'),
        (dt.datetime(2026, 1, 31, 12), '"2026-01-31T12:00:00"'),  # noqa: DTZ001
        (("a", "b"), '["a","b"]'),
        (_Status.PAID, '"paid"'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
    ],
    ids=str,
)
def test_values_are_written_without_loss(value: object, written: str) -> None:
    """Decimals and dates become strings; numbers stay what they are."""
    assert read({**BASE, "value": value}).body.decode().endswith(f'"value":{written}}}')


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (None, "event"),
        ([], "event"),
        ("text", "event"),
        ({}, "merchant_id"),
        ({"merchant_id": "acme"}, "type"),
        ({**BASE, "type": ""}, "type"),
        ({**BASE, "type": "  "}, "type"),
        ({**BASE, "type": 7}, "type"),
        ({**BASE, "type": "a\r\nX-Evil: 1"}, "type"),
        ({**BASE, "type": "x" * 201}, "type"),
        ({**BASE, "merchant_id": None}, "merchant_id"),
        ({**BASE, "merchant_id": "a\0b"}, "merchant_id"),
        ({**BASE, "merchant_id": "acme "}, "merchant_id: begins or ends with white space"),
        ({**BASE, "merchant_id": "\tacme"}, "merchant_id: begins or ends with white space"),
        ({**BASE, "merchant_id": "acme\u2003"}, "merchant_id: begins or ends with white space"),
        ({**BASE, "type": "payment.status_changed\n"}, "type: begins or ends with white space"),
        ({**BASE, "merchant_id": "cafe\u0301"}, "merchant_id: is not in Unicode's composed form"),
        ({**BASE, "type": "cafe\u0301"}, "type: is not in Unicode's composed form"),
        ({**BASE, "merchant_id": "ac\u200bme"}, "merchant_id: must be at most 200 printable"),
        ({**BASE, "merchant_id": "ac\u3164me"}, "merchant_id: must be at most 200 printable"),
        ({**BASE, "merchant_id": "acme\ufe0f"}, "merchant_id: must be at most 200 printable"),
        ({**BASE, "merchant_id": "ep_backup"}, "merchant_id: looks like the id of an endpoint"),
        ({**BASE, "merchant_id": "ep_0"}, "merchant_id: looks like the id of an endpoint"),
        ({**BASE, "merchant_id": "ep_a" + 39 * "-"}, "merchant_id: looks like the id of an endpoint"),
        ({**BASE, "id": None}, "id"),
        ({**BASE, "id": ""}, "id"),
        ({**BASE, "id": 7}, "id"),
        ({**BASE, "id": "a b"}, "id"),
        ({**BASE, "id": "a\n"}, "id"),
        ({**BASE, "id": "é"}, "id"),
        ({**BASE, "id": "x" * 129}, "id"),
        ({**BASE, "a": float("nan")}, "event.a"),
        ({**BASE, "a": {"b": [0, float("inf")]}}, "event.a.b[1]"),
        ({**BASE, "a": Decimal("NaN")}, "event.a"),
        ({**BASE, "a": Decimal("Infinity")}, "event.a"),
        ({**BASE, "a": Decimal("1E+999999")}, "event.a"),
        ({**BASE, "a": "\ud800"}, "event.a"),
        ({**BASE, "\udfff": 1}, "event"),
        ({1: 1} | dict[Any, Any](BASE), "event"),
        ({**BASE, "a": {None: 1}}, "event.a"),
        ({**BASE, "a": b"bytes"}, "event.a"),
        ({**BASE, "a": {1, 2}}, "event.a"),
        ({**BASE, "a": object()}, "event.a"),
        ({**BASE, "a": 10**5000}, "event.a"),
        ({**BASE, "a": _nested(100)}, "event.a"),
        ({**BASE, "a": _endless()}, "event.a"),
    ],
)
def test_refused_with_the_field_named(event: object, named: str) -> None:
    """An invalid event is refused with one line that begins with the field."""
    with pytest.raises(InvalidEvent) as refusal:
        read(event)
    text = str(refusal.value)
    assert text.startswith((named, f"the {named}"))
    assert "\n" not in text


@pytest.mark.parametrize("name", ["café", "ООО «Ромашка»", "カフェ", "acme shop", "🧾", "한글"])
def test_names_in_any_alphabet_are_accepted(name: str) -> None:
    """What is refused is what looks like another name, not what looks foreign."""
    assert read({**BASE, "merchant_id": name}).merchant_id == name


@pytest.mark.parametrize("name", ["ep_", "ep_Shop", "Ep_shop", "ep-shop", "step_one", "ep_é", "ep_a" + 40 * "-"])
def test_a_name_that_is_no_endpoints_is_a_merchants(name: str) -> None:
    """Only the very form of an endpoint's id is kept for endpoints."""
    assert read({**BASE, "merchant_id": name}).merchant_id == name


def test_a_type_may_look_like_an_endpoint() -> None:
    """Nobody takes one for the other."""
    assert read({**BASE, "type": "ep_backup"}).type == "ep_backup"


def test_size_is_limited_in_bytes() -> None:
    """256 KiB of UTF-8 pass, one byte more is refused."""
    empty = len(read({**BASE, "a": ""}).body)
    assert len(read({**BASE, "a": "x" * (MAX_BODY_BYTES - empty)}).body) == MAX_BODY_BYTES
    with pytest.raises(InvalidEvent, match="at most 262144"):
        read({**BASE, "a": "x" * (MAX_BODY_BYTES - empty + 1)})
    with pytest.raises(InvalidEvent, match="at most 262144"):
        read({**BASE, "a": "é" * (MAX_BODY_BYTES // 2)})


def test_what_is_told_of_a_refused_event_is_short_and_printable() -> None:
    """Somebody else chose the texts, and they go into a log, a terminal and PostgreSQL."""
    told = RefusedEvent.of({"id": "e" * 999, "type": 7, "merchant_id": "\x00\ud800\x1b[2J"}, "task", "why" * 999)
    assert told == RefusedEvent("e" * 300, r"\x00\ud800\x1b[2J", None, "task", "why" * 100)
    assert RefusedEvent.of(None, "task", "why") == RefusedEvent(None, None, None, "task", "why")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(more=st.dictionaries(st.text(), _JSON, max_size=5))
def test_any_json_object_round_trips(more: dict[str, Any]) -> None:
    """Whatever JSON an event holds, the merchant reads the same back; nothing else escapes as an error."""
    assert json.loads(read({**more, **BASE}).body) == {**more, **BASE}


_TEXTS = st.text() | st.sampled_from(["\ud800", "a\udfff", "\U0001f9fe", '"\\\x00'])
_VALUES = (
    _TEXTS
    | st.integers()
    | st.integers(4090, 4100).map(lambda bits: 1 << bits)
    | st.booleans()
    | st.none()
    | st.floats()
    | st.lists(st.integers())
    | st.just(_Status.PAID)
)


@given(st.dictionaries(_TEXTS, _VALUES, max_size=5))
def test_a_flat_event_is_read_as_any_other(fields: dict[str, Any]) -> None:
    """With the same bytes, and refused in the same words, as one with a key that has to be looked at."""
    assert _read_or_why({**fields, **BASE}) == _read_or_why(
        {_Own(key): value for key, value in {**fields, **BASE}.items()}
    )


def _read_or_why(event: dict[str, Any]) -> object:
    try:
        return read(event)
    except InvalidEvent as error:
        return str(error)
