"""The application: pages and API put together, with what every answer of theirs carries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from webhooks.errors import WebhooksError
from webhooks.page import api, pages, sessions, words
from webhooks.page.troubles import Trouble, trouble_of

_LARGEST = 256 * 1024  # bytes of a request's body: ids, and a reason

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_HTTPS_LASTS = timedelta(days=180)

_SAID_BY_API = {
    404: f"there is no such path; all are in {api.PREFIX}/openapi.json",
    405: f"this path knows no such method; all are in {api.PREFIX}/openapi.json",
}
_SAID = {404: "there is no such page", 405: "this page takes no such request", 413: "that is too large"}


def make_application() -> Flask:
    """Return the application, over this process's parts."""
    application = Flask(__name__)
    application.config.update(MAX_CONTENT_LENGTH=_LARGEST, MAX_FORM_PARTS=500)
    application.jinja_env.trim_blocks = application.jinja_env.lstrip_blocks = True
    application.url_map.merge_slashes = False
    application.json.sort_keys = False  # type: ignore[attr-defined]
    sessions.prepare(application)
    words.teach(application)
    application.register_blueprint(api.make_api())
    application.register_blueprint(pages.make_pages())
    application.after_request(_with_headers)
    application.register_error_handler(Exception, _refuse)
    return application


def _with_headers(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.endpoint != "static":
        response.headers["Cache-Control"] = "no-store"
    if request.is_secure:
        response.headers["Strict-Transport-Security"] = f"max-age={_HTTPS_LASTS.total_seconds():.0f}"
    return response


def _refuse(error: Exception) -> Response:
    """Say what is wrong in a line, as JSON or as a page; only what nobody has foreseen goes into the log."""
    is_api = request.path.startswith(f"{api.PREFIX}/")
    if isinstance(error, HTTPException):
        trouble = _of_http(error, _SAID | _SAID_BY_API if is_api else _SAID)
    else:
        trouble = trouble_of(error, looking=request.method == "GET")
        if not isinstance(error, WebhooksError):
            current_app.logger.error("a fault of this page, at %r", request.path, exc_info=error)
    return api.refuse(trouble) if is_api else pages.refuse(trouble)


def _of_http(error: HTTPException, said: Mapping[int, str]) -> Trouble:
    status = error.code or 500
    return Trouble(status, said.get(status, error.name.lower()))
