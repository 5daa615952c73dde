"""Who is here: logging in and out, and the signed cookie in between."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flask import Flask, g, request, session
from flask.sessions import SecureCookieSessionInterface

from webhooks import parts
from webhooks.errors import Refused
from webhooks.observing.operators import LoggedIn, LoggedOut, LoginFailed
from webhooks.page.limiting import Failures
from webhooks.process.accounts import Account, by_password, by_token, read_accounts
from webhooks.process.once import once
from webhooks.process.spans import in_words
from webhooks.settings import get_settings

LASTS = timedelta(hours=8)  # a shift; after that one logs in again
_AT_ONCE = threading.BoundedSemaphore(2)  # each check of a password takes 32 MiB
_QUEUES_S = 3.0  # for which a login waits for others: many at once must not take all threads of the page
_now = time.time


class NotLoggedIn(Refused):
    """It is not known who asks."""


class TooOften(Refused):
    """Too many logins have failed."""


class Forged(Refused):
    """A form that this page did not make, or not for this session."""


@dataclass(frozen=True, slots=True)
class _Book:
    """What a process remembers of logins: those that failed, and the sessions that were ended before their time."""

    failures: Failures
    ended: dict[str, float]


@once
def book() -> _Book:
    """Return this process's."""
    return _Book(Failures(), {})


class _Cookies(SecureCookieSessionInterface):
    """The session's cookie goes over HTTPS alone where the page is reached so."""

    def get_cookie_secure(self, app: Flask) -> bool:  # noqa: ARG002
        """Whether the browser keeps it from plain HTTP."""
        return request.is_secure


def prepare(application: Flask) -> None:
    """Have an application's sessions in cookies that it signs."""
    first, *others = (_key(each) for each in get_settings().secrets_key.get_secret_value().split(","))
    application.secret_key = first
    application.config.update(
        SECRET_KEY_FALLBACKS=others,
        SESSION_COOKIE_NAME="webhooks",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_REFRESH_EACH_REQUEST=False,
        PERMANENT_SESSION_LIFETIME=LASTS,
    )
    application.session_interface = _Cookies()


def log_in(name: str, password: str) -> None:
    """Begin a session. Raises TooOften, and NotLoggedIn, which does not tell a wrong name from a wrong password."""
    if wait := book().failures.wait(_origin(), name):
        raise TooOften(f"too many logins have failed: try again in {in_words(wait)}")
    account = _checked(name, password)
    if account is None:
        _note_failure(name)
        raise NotLoggedIn("no such operator, or not this password")
    session.clear()
    session.permanent = True
    session.update(name=account.name, mark=account.mark, until=_now() + LASTS.total_seconds())
    session["id"] = secrets.token_urlsafe(16)
    parts.observers().tell(LoggedIn(account.name, _origin()))


def log_out() -> None:
    """End the session, for whoever has a copy of its cookie, too."""
    ended, now = book().ended, _now()
    for each in [each for each, until in list(ended.items()) if until < now]:
        ended.pop(each, None)
    if "id" in session:
        ended[session["id"]] = session["until"]
        parts.observers().tell(LoggedOut(session["name"], _origin()))
    session.clear()


def visitor() -> Account | None:
    """Return who is logged in; nobody whose account has changed since."""
    if "visitor" not in g:
        g.visitor = _visitor()
    found: Account | None = g.visitor
    return found


def bearer() -> Account:
    """Return whose token a request brings; raises NotLoggedIn."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    account = by_token(accounts_here(), token.strip()) if kind.lower() == "bearer" else None
    if account is None:
        raise NotLoggedIn("send the header Authorization: Bearer TOKEN; to make one: webhooks dashboard token")
    return account


def form_token() -> str:
    """Return what proves that a form is this page's, for this session."""
    if "form" not in session:
        session["form"] = secrets.token_urlsafe(24)
    token: str = session["form"]
    return token


def check_form() -> None:
    """Raise Forged for a form that somebody else's page has sent."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    given, known = request.form.get("form_token", ""), session.get("form", "")
    if site not in {"same-origin", "none"} or not known or not hmac.compare_digest(given.encode(), known.encode()):
        raise Forged("this form was not made for this session: go back, load the page anew, and send it again")


def _checked(name: str, password: str) -> Account | None:
    if not _AT_ONCE.acquire(timeout=_QUEUES_S):
        raise TooOften("too many log in at once: try again in a moment")
    try:
        return by_password(accounts_here(), name, password)
    finally:
        _AT_ONCE.release()


def _note_failure(name: str) -> None:
    failures = book().failures
    failures.note(_origin(), name)
    known = next((each.name for each in accounts_here() if each.name == name), None)
    parts.observers().tell(LoginFailed(known, _origin(), failures.wait(_origin(), name) or None))


def _origin() -> str:
    return request.remote_addr or "nowhere"


def _visitor() -> Account | None:
    known: Any = session.get("name")
    account = next((each for each in accounts_here() if each.name == known), None)
    if account is None or session.get("mark") != account.mark:
        return None
    is_over = _now() > session.get("until", 0) or session.get("id") in book().ended
    return None if is_over else account


@once
def accounts_here() -> tuple[Account, ...]:
    """Return the operators of this process's setting."""
    return tuple(read_accounts(get_settings().dashboard_users.get_secret_value()))


def _key(secret: str) -> bytes:
    """Derive what signs cookies from what encrypts secrets: neither tells the other."""
    return hmac.new(secret.strip().encode(), b"sessions of the dashboard", hashlib.sha256).digest()
