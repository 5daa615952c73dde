"""From texts to typed values and back to JSON, with a schema for each: the one door to pydantic beside the settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from webhooks.errors import Refused
from webhooks.process.spelling import parse_moment

REFERENCE = "#/components/schemas/{model}"
Direction = Literal["validation", "serialization"]


class Unreadable(Refused):
    """What was asked is not written as it has to be; the text names the field."""


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not UTF-8") from None
    if "\0" in text:
        raise ValueError("it has a NUL in it")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it is more than a line, or has characters in it that cannot be printed")
    return text


LONGEST_NAME = 1000  # characters: more than any name has, and few enough to be told in a line

Text = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_storable)]
When = Annotated[datetime, BeforeValidator(parse_moment)]
Lines = Annotated[int, Field(ge=1, le=200)]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
Code = Annotated[int, Field(ge=100, le=999)]
Id = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_storable)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=200)]
Why = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500), AfterValidator(_printable)]
Optional = Text | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """No fields at all."""


class _Generator(GenerateJsonSchema):
    """Durations are seconds here, as in what the command prints."""

    def timedelta_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ARG002
        return {"type": "number", "description": "seconds"}

    def encode_default(self, dft: Any) -> Any:
        """Write a default value as an answer would have it."""
        return dft.total_seconds() if isinstance(dft, timedelta) else super().encode_default(dft)


def read(kind: type[Any], given: Mapping[str, object]) -> Any:
    """Read a value of a dataclass from its fields; raises Unreadable, in one line."""
    known = {field.name for field in fields(kind)}
    if strange := sorted(set(given) - known):
        raise Unreadable(f"{strange[0][:100]!r} is not known here; known: {', '.join(sorted(known)) or 'nothing'}")
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise Unreadable("; ".join(_complaint(fault) for fault in error.errors()[:5])) from None


def to_json(value: object, kind: Any) -> str:
    """Write a value of this type as JSON: moments as ISO 8601 with their zone, durations as seconds."""
    return json.dumps(TypeAdapter(kind).dump_python(value), default=_plain, ensure_ascii=False)


def schemas(
    wanted: Sequence[tuple[str, Direction, Any]],
) -> tuple[dict[str, JsonSchemaValue], dict[str, JsonSchemaValue]]:
    """Return the schema of each wanted type by name, and the shared ones to which these refer."""
    made, shared = TypeAdapter.json_schemas(
        [(name, way, TypeAdapter(kind)) for name, way, kind in wanted],
        ref_template=REFERENCE,
        schema_generator=_Generator,
    )
    return {name: schema for (name, _), schema in made.items()}, shared.get("$defs", {})


def field_schemas(kind: type[Any]) -> tuple[dict[str, JsonSchemaValue], set[str], dict[str, JsonSchemaValue]]:
    """Return the schema of each field of a dataclass, which of them are needed, and the shared ones."""
    schema = TypeAdapter(kind).json_schema(ref_template=REFERENCE, schema_generator=_Generator)
    return schema.get("properties", {}), set(schema.get("required", [])), schema.get("$defs", {})


def _complaint(fault: Any) -> str:
    place = ".".join(str(each) for each in fault["loc"])
    return f"{place}: {str(fault['msg']).removeprefix('Value error, ')}"


def _plain(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case tuple() | frozenset() | set():
            return list(value)
        case _:
            raise TypeError(f"JSON has no word for a {type(value).__name__}")
