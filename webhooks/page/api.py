"""The JSON API: each operation at its path under /api, for whoever brings a token, and the document of them all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version

from flask import Blueprint, Response, request

from webhooks.page import sessions, typed
from webhooks.page.describing import describe
from webhooks.page.operations import Operation
from webhooks.page.table import OPERATIONS
from webhooks.page.troubles import Trouble

PREFIX = "/api"


def make_api() -> Blueprint:
    """Return the API with all operations."""
    api = Blueprint("api", __name__, url_prefix=PREFIX)
    for each in OPERATIONS:
        rule = each.path.replace("{", "<path:").replace("}", ">")  # a merchant's id may have a / in it
        api.add_url_rule(rule, each.name, partial(_serve, each), methods=[each.method])
    api.add_url_rule("/openapi.json", "document", lambda: _answer(_document()))
    return api


def refuse(trouble: Trouble) -> Response:
    """Say in JSON what is wrong."""
    answer = _answer(json.dumps({"error": trouble.text}, ensure_ascii=False), trouble.status)
    if trouble.status == 401:  # noqa: PLR2004
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _serve(operation: Operation, **named: str) -> Response:
    account = sessions.bearer()
    answer = operation(account, named, _given(operation))
    return _answer(typed.to_json(answer, operation.answer))


def _given(operation: Operation) -> Mapping[str, object]:
    if operation.method == "GET":
        twice = [name for name, values in request.args.lists() if len(values) > 1]
        if twice:
            raise typed.Unreadable(f"{twice[0][:100]!r} is given twice")
        return {name: value for name, value in request.args.items() if value}
    try:
        body = request.get_json(silent=True)
    except RecursionError:  # thousands of brackets within each other
        body = None
    if not isinstance(body, dict):
        raise typed.Unreadable("the body is not a JSON object, sent as application/json")
    return body


@cache
def _document() -> str:
    """Write the document; nothing in it is of this system, so that a client can be made from it by anybody."""
    return json.dumps(describe(OPERATIONS, version("webhook-delivery-worker")), ensure_ascii=False)


def _answer(text: str, status: int = 200) -> Response:
    return Response(text, status, mimetype="application/json")
