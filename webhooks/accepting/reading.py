"""Reading an event: what is refused, and the bytes that are stored, signed and sent ever after.

Rules, part 2, "Accepting events". The body is serialised once, here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any

from webhooks.errors import InvalidEvent
from webhooks.policy.events import is_money

MAX_BODY_BYTES = 256 * 1024
IDENTITY = frozenset({"id", "merchant_id", "type"})

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_ENDPOINT = re.compile(r"ep_[a-z0-9][a-z0-9._-]{0,39}", re.ASCII)
_SIMPLE = re.compile(r"[A-Za-z0-9._:-]{1,200}", re.ASCII)  # what almost every name is, and nothing is wrong with it
_MAX_NAME = 200  # characters of a type or merchant id: they are index keys in PostgreSQL
# What Python counts as printable although nobody sees it: fillers, blanks, variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_MAX_TOLD = 300  # characters of each thing that is told of a refused event
MAX_DEPTH = 64
_MAX_INTEGER_BITS = 4096
_MAX_EXPONENT = 400  # past any float; a Decimal of 1E+999999 would be a megabyte of zeros
_PLAIN = frozenset({str, int, bool, NoneType})  # of these very types JSON writes as they are
_TEXTS = frozenset({str})

_in_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Event:
    """An event that may be recorded. `body` is compact UTF-8 JSON, `body_sha256` its digest (32 bytes).

    `keys` are fields of the body with their values, by which support finds it.
    """

    id: str
    merchant_id: str
    type: str
    money: bool
    body: bytes
    body_sha256: bytes
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """What may be told of an event that was sent by task name and refused; its body is not among it (I9)."""

    event_id: str | None
    merchant_id: str | None
    type: str | None
    task_id: str
    why: str

    @classmethod
    def of(cls, event: object, task_id: str, why: str) -> RefusedEvent:
        """Tell what there is, cut to a length; `event` may be anything."""
        told = event if isinstance(event, Mapping) else {}
        event_id, merchant_id, event_type = (
            _in_short(name) if isinstance(name, str) else None
            for name in (told.get("id"), told.get("merchant_id"), told.get("type"))
        )
        return cls(event_id, merchant_id, event_type, _in_short(task_id), _in_short(why))


def read(event: object, keys: Sequence[str] = ()) -> Event:
    """Check an event and serialise it.

    `event` is a mapping with `type` and `merchant_id` (see `checked_name`) and, optionally, `id` (up to 128 characters
    of `A-Z a-z 0-9 . _ : -`; made when missing). The rest is the merchant's business. Decimals and dates become
    strings. Raises InvalidEvent with one line that names the field.
    """
    if not isinstance(event, Mapping):
        raise InvalidEvent(f"the event is a {type(event).__name__}; it must be a JSON object (a dict)")
    fields = {**event} if "id" in event else {**event, "id": str(uuid.uuid4())}
    event_id = _checked_id(fields["id"])
    merchant_id = checked_name("merchant_id", fields.get("merchant_id"))
    event_type = checked_name("type", fields.get("type"))
    body = _serialise(fields)
    return Event(
        id=event_id,
        merchant_id=merchant_id,
        type=event_type,
        money=is_money(event_type, fields.get("status")),
        body=body,
        body_sha256=hashlib.sha256(body).digest(),
        keys=tuple(_found_by(fields, keys)),
    )


def _found_by(fields: Mapping[Any, Any], keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give the fields that can be looked for: top-level texts and integers, which somebody may have in hand."""
    for key in keys:
        value = fields.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            value = format(value, "d")
        # PostgreSQL's texts take no zero byte, and nobody types one.
        if isinstance(value, str) and 0 < len(value) <= _MAX_NAME and "\0" not in value:
            yield key, _plain(value)


def id_from(name: str) -> str:
    """Return the delivery id that a foreign name stands for: itself where it may be one, or always the same one."""
    return name if _ID.fullmatch(name) else str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def _checked_id(value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InvalidEvent("id: must be 1 to 128 characters of A-Z a-z 0-9 . _ : - (leave it out to have one made)")
    return _plain(value)


def checked_name(field: str, value: object) -> str:
    """Return a type or merchant id that may be one. Raises InvalidEvent.

    Two that look the same are the same: no white space around it, nothing invisible, and one form of each character.
    The body carries the name as it came, so that it is refused rather than set right.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidEvent(f"{field}: must be a non-empty string")
    if not _SIMPLE.fullmatch(value):
        _check_signs(field, value)
    if field == "merchant_id" and is_of_an_endpoint(value):
        raise InvalidEvent("merchant_id: looks like the id of an endpoint, which begins with ep_; choose another")
    return _plain(value)


def _check_signs(field: str, value: str) -> None:
    if value != value.strip():
        raise InvalidEvent(f"{field}: begins or ends with white space; leave that out")
    if len(value) > _MAX_NAME or not value.isprintable() or _UNSEEN.search(value):
        raise InvalidEvent(f"{field}: must be at most {_MAX_NAME} printable characters")
    if not unicodedata.is_normalized("NFC", value):
        raise InvalidEvent(f"{field}: is not in Unicode's composed form; write it as unicodedata.normalize('NFC', …)")


def is_of_an_endpoint(name: str) -> bool:
    """Whether an id is one of an endpoint other than a merchant's default one, whose id is the merchant's."""
    return _ENDPOINT.fullmatch(name) is not None


def _plain(text: str) -> str:
    """Return the text itself: `str()` of an enumeration's member would be its name."""
    return str.__str__(text)


def _in_short(text: str) -> str:
    """Cut a foreign text, and write what neither a terminal nor PostgreSQL takes as escapes."""
    signs = (sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text[:_MAX_TOLD])
    return "".join(signs)[:_MAX_TOLD]


def _serialise(fields: Mapping[Any, Any]) -> bytes:
    body = _in_plain_words(fields) or _in_json(_to_json(fields, "event", 0)).encode()
    if len(body) > MAX_BODY_BYTES:
        raise InvalidEvent(f"event: the body is {len(body)} bytes; at most {MAX_BODY_BYTES} are accepted")
    return body


def _in_plain_words(fields: Mapping[Any, Any]) -> bytes | None:
    """Write what almost every event is, a flat object of plain values, without a walk through it; None for any other.

    The bytes are those that the walk leads to, which also says of what is refused where it stands.
    """
    kinds = set(map(type, fields.values()))
    if not (kinds <= _PLAIN and _TEXTS.issuperset(map(type, fields))):
        return None
    if int in kinds and any(type(value) is int and value.bit_length() > _MAX_INTEGER_BITS for value in fields.values()):
        return None
    try:
        return _in_json(fields).encode()
    except UnicodeEncodeError:
        return None


def _to_json(value: object, where: str, depth: int) -> object:  # noqa: C901, PLR0911 - one line for each of JSON's words
    """Return `value` in JSON's own words; `where` names it in the error."""
    if depth > MAX_DEPTH:
        raise InvalidEvent(f"{where[:80]}…: nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case str():
            return _checked_text(value, where)
        case int():
            if value.bit_length() > _MAX_INTEGER_BITS:
                raise InvalidEvent(f"{where}: an integer of more than {_MAX_INTEGER_BITS} bits")
            return int(value)
        case float():
            if not math.isfinite(value):
                raise InvalidEvent(f"{where}: JSON has no word for {value}")
            return float(value)
        case Decimal():
            return _plain_decimal(value, where)
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {
                _checked_key(key, where): _to_json(item, f"{where}.{key}", depth + 1) for key, item in value.items()
            }
        case list() | tuple():
            return [_to_json(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
        case _:
            raise InvalidEvent(f"{where}: JSON has no word for a {type(value).__name__}")


def _checked_text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"{where}: holds half a surrogate pair, which is not Unicode text") from None
    return _plain(value)


def _checked_key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidEvent(f"{where}: the key {key!r} is a {type(key).__name__}; JSON's keys are strings")
    return _checked_text(key, f"{where} (a key)")


def _plain_decimal(value: Decimal, where: str) -> str:
    """Write an amount as a person would: `0.10` stays `0.10`, and 1E+2 is `100`."""
    if not value.is_finite() or abs(value.adjusted()) > _MAX_EXPONENT:
        raise InvalidEvent(f"{where}: {value} is not an amount that can be written out")
    return format(value, "f")
