"""A client of the API that knows nothing but its document, and believes nothing that the document does not say."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from jsonschema import Draft202012Validator, FormatChecker

from tests.page.conftest import TOKENS, Site


class Client:
    """Calls operations by their names, and holds each answer against its schema."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.document: dict[str, Any] = site.api("GET", "/openapi.json", None).json()
        self.operations: dict[str, tuple[str, str, dict[str, Any]]] = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, ways in self.document["paths"].items()
            for method, operation in ways.items()
        }
        self._shared = _closed(self.document["components"])

    def call(self, name: str, token: str = TOKENS["anna"], expected: int = 200, **given: Any) -> Any:
        """Call an operation, and return what it answers; what is not named in its path or query is its body."""
        method, path, operation = self.operations[name]
        places = {each["name"]: each["in"] for each in operation["parameters"]}
        for key, place in places.items():
            if place == "path":
                path = path.replace(f"{{{key}}}", quote(str(given.pop(key)), safe=""))
        query = {key: given.pop(key) for key, place in places.items() if place == "query" and key in given}
        if "requestBody" in operation:
            self._check(operation["requestBody"]["content"], given)
            answer = self._site.api(method, path, token, params=query, json=given)
        else:
            assert not given, f"{name} takes no {given}"
            answer = self._site.api(method, path, token, params=query)
        assert answer.status_code == expected, f"{name}: {answer.status_code} {answer.text}"
        value = answer.json()
        self._check(operation["responses"][str(expected)]["content"], value)
        return value

    def _check(self, content: Mapping[str, Any], value: Any) -> None:
        schema = {**_closed(content["application/json"]["schema"]), "components": self._shared}
        Draft202012Validator(schema, format_checker=FormatChecker(["date-time"])).validate(value)


def _closed(schema: Any) -> Any:
    """Return a schema that allows no field which it does not name."""
    schema = copy.deepcopy(schema)
    waiting = [schema]
    while waiting:
        match waiting.pop():
            case {"properties": dict()} as found:
                found.setdefault("additionalProperties", False)
                waiting += found.values()
            case dict() as found:
                waiting += found.values()
            case list() as found:
                waiting += found
            case _:
                pass
    return schema
