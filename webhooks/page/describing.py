"""The API's document: OpenAPI 3.1, made from the operations and their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webhooks.page import typed
from webhooks.page.operations import Operation
from webhooks.process.accounts import Rights

_VERSION = "3.1.0"
_REFUSALS = {
    "401": "It is not known who asks: no token, or none that is known.",
    "403": "The operator's role does not go that far.",
    "404": "What is named is not there.",
    "409": "What is there does not allow it; nothing was changed.",
    "413": "The request is too large.",
    "422": "The request is not written as it has to be; the text names the field.",
    "500": "A fault of ours, which trying again does not mend.",
    "503": "The ledger, the gate or the broker is away: try again.",
}


def describe(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """Return the document."""
    answers, shared = typed.schemas([(each.name, "serialization", each.answer) for each in operations])
    acts = [each for each in operations if each.role is Rights.ACT]
    wishes, of_wishes = typed.schemas([(each.name, "validation", each.wish) for each in acts])
    for each in operations:
        of_wishes |= typed.field_schemas(each.wish)[2]
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        described = _describe(each, answers[each.name], wishes.get(each.name, {}))
        paths.setdefault(each.path, {})[each.method.lower()] = described
    return {
        "openapi": _VERSION,
        "info": {
            "title": "Webhook delivery worker",
            "version": version,
            "description": "What operators see and do; each act has its line in the audit, with the operator's name.",
        },
        "servers": [{"url": "/api"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**of_wishes, **shared, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_PROBLEM = {
    "type": "object",
    "description": "What is wrong, in a line for a person.",
    "properties": {"error": {"type": "string"}},
    "required": ["error"],
    "additionalProperties": False,
}


def _describe(operation: Operation, answer: dict[str, Any], wish: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.role],
        "parameters": [_in_path(name) for name in operation.names],
        "responses": {"200": {"description": "It is so.", "content": _json(answer)}, **_refusals(operation)},
    }
    if operation.role is Rights.ACT:
        described["requestBody"] = {"required": True, "content": _json(wish)}
    else:
        described["parameters"] += _in_query(operation)
    return described


def _refusals(operation: Operation) -> dict[str, Any]:
    left_out = {"409", "413"} if operation.role is Rights.LOOK else set()
    content = _json({"$ref": typed.REFERENCE.format(model="Problem")})
    return {
        status: {"description": text, "content": content}
        for status, text in _REFUSALS.items()
        if status not in left_out
    }


def _in_path(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": typed.LONGEST_NAME}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(operation: Operation) -> list[dict[str, Any]]:
    schemas, needed, _ = typed.field_schemas(operation.wish)
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": schema} for name, schema in schemas.items()
    ]


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
