"""The pages: each a few reads in a template, and each form one act; all by the table of operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, abort, flash, make_response, redirect, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from webhooks.ledger.pacing import Tally
from webhooks.model import HeldFor, Reason, State
from webhooks.page import sessions
from webhooks.page.overview import look_around
from webhooks.page.pictures import Bar
from webhooks.page.sessions import NotLoggedIn, TooOften
from webhooks.page.table import BY_NAME
from webhooks.page.troubles import Trouble, trouble_of
from webhooks.page.words import link
from webhooks.process.spans import in_words

_OPEN = {"pages.login", "pages.enter", "pages.alive"}  # for everybody
_LONGEST_PATH = 2000  # characters
_LONGEST_TOLD = 1000  # characters: it travels in the cookie

Picture = tuple[str, str, list[Bar], str]


def make_pages() -> Blueprint:
    """Return the pages."""
    pages = Blueprint("pages", __name__)
    pages.before_request(_admit)
    for path, view in _VIEWS.items():
        pages.add_url_rule(path, view.__name__, view)
    pages.add_url_rule("/login", "enter", enter, methods=["POST"])
    pages.add_url_rule("/logout", "leave", leave, methods=["POST"])
    pages.add_url_rule("/acts/<name>", "act", act, methods=["POST"])
    return pages


def refuse(trouble: Trouble) -> Response:
    """Say on a page what is wrong; asking anew is offered where it may help, and after an act the way back."""
    again = request.full_path if trouble.status >= HTTPStatus.INTERNAL_SERVER_ERROR else ""
    back = _local(again if request.method == "GET" else _came_from(), "")
    return make_response(render_template("trouble.html", trouble=trouble, back=back), trouble.status)


def _came_from() -> str:
    """Return where the form that was sent is; of one that cannot be read, such as one too large, nobody knows."""
    try:
        return request.form.get("back", "")
    except HTTPException:
        return ""


def _admit() -> AnyResponse | None:
    """Let in who is logged in."""
    if request.endpoint in _OPEN or sessions.visitor():
        return None
    back = request.full_path.rstrip("?") if request.method == "GET" else _local(request.form.get("back", "/"))
    return redirect(_login_at(back), 303)


def _login_at(back: str) -> str:
    return link("/login", back="" if back == "/" else back)


def alive() -> str:
    """Say that the page is there, for health checks."""
    return "ok\n"


def login() -> str:
    """Ask who it is."""
    return render_template("login.html", trouble=None, back=_local(request.args.get("back", "/")))


def enter() -> AnyResponse:
    """Log in."""
    back = _local(request.form.get("back", "/"))
    sessions.check_form()
    try:
        sessions.log_in(request.form.get("name", ""), request.form.get("password", ""))
    except (NotLoggedIn, TooOften) as error:
        trouble = trouble_of(error)
        return make_response(render_template("login.html", trouble=trouble, back=back), trouble.status)
    return redirect(back, 303)


def leave() -> AnyResponse:
    """Log out."""
    sessions.check_form()
    sessions.log_out()
    return redirect("/login", 303)


def act(name: str) -> AnyResponse:
    """Do what a form asks for, and go back to where it was."""
    sessions.check_form()
    operation = BY_NAME.get(name)
    if operation is None or operation.method != "POST":
        abort(404)
    given: dict[str, object] = {
        key: values if key in operation.many else values[-1] for key, values in request.form.lists()
    }
    back = _local(str(given.pop("back", "/")))
    given.pop("form_token")
    if "text" in operation.fields:
        given["text"] = given.pop("why", "")  # one field serves all buttons of a form
    named = {key: str(given.pop(key, "")) for key in operation.names}
    done = operation(_visitor(), named, given)
    flash(operation.tell(done)[:_LONGEST_TOLD], "done")
    return redirect(back, 303)


def overview() -> str:
    """Show everything at a glance."""
    found = look_around()
    day = _pictures(found.pace.day) if found.pace else []
    hour = _pictures(found.pace.hour) if found.pace else []
    return render_template("overview.html", found=found, day=day, hour=hour)


def deliveries() -> str:
    """Show deliveries, with filters."""
    choices = [("state", "state", list(State)), ("held_for", "held for", list(HeldFor))]
    choices += [("reason", "reason", list(Reason)), ("money", "money", ["true", "false"])]
    return render_template("deliveries.html", page=_ask("list_deliveries"), choices=choices)


def find() -> AnyResponse | str:
    """Show what is found by a value; without one, all."""
    if not request.args.get("value", "").strip():
        return redirect("/deliveries", 303)
    return render_template("find.html", found=_ask("find_deliveries"))


def delivery() -> str:
    """Show one delivery's journey."""
    return render_template("delivery.html", found=_one("show_delivery", "delivery_id"))


def event() -> str:
    """Show an event and where it went."""
    return render_template("event.html", found=_one("show_event", "event_id"))


def merchants() -> str:
    """Show all endpoints, by merchant."""
    return render_template("merchants.html", page=_ask("list_endpoints"))


def merchant() -> str:
    """Show one merchant."""
    return render_template("merchant.html", found=_one("show_merchant", "merchant_id"))


def endpoint() -> str:
    """Show one endpoint."""
    return render_template("endpoint.html", found=_one("show_endpoint", "endpoint_id"))


def failed() -> str:
    """Show the desk."""
    choices = [("reason", "reason", list(Reason)), ("money", "money", ["true", "false"])]
    desk = BY_NAME["show_desk"](_visitor(), {}, {})
    narrowed = any(request.args.values())
    return render_template("failed.html", found=desk, page=_ask("list_failures"), narrowed=narrowed, choices=choices)


def audit() -> str:
    """Show what was done by hand."""
    return render_template("audit.html", page=_ask("list_audit"))


_VIEWS = {
    "/": overview,
    "/alive": alive,
    "/login": login,
    "/deliveries": deliveries,
    "/find": find,
    "/delivery": delivery,
    "/event": event,
    "/merchants": merchants,
    "/merchant": merchant,
    "/endpoint": endpoint,
    "/failed": failed,
    "/audit": audit,
}


def _visitor() -> Any:
    found = sessions.visitor()
    if found is None:
        raise NotLoggedIn("log in first")
    return found


def _ask(name: str) -> Any:
    given: Mapping[str, object] = {key: value.strip() for key, value in request.args.items() if value.strip()}
    return BY_NAME[name](_visitor(), {}, given)


def _one(name: str, key: str) -> Any:
    return BY_NAME[name](_visitor(), {key: request.args.get("id", "").strip()}, {})


def _local(path: str, otherwise: str = "/") -> str:
    """Return a path of this page: nobody is led elsewhere, nor by an address that a proxy would not pass on."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours and len(path) <= _LONGEST_PATH else otherwise


def _pictures(steps: Sequence[Tally]) -> list[Picture]:
    return [
        (name, name, [Bar(step.since, getattr(step, name), f"{getattr(step, name):,} {name}") for step in steps], "")
        for name in ("accepted", "delivered", "failed")
    ] + [("lag", "lag: how long past its due time the slowest was sent", [_lag(step) for step in steps], "s")]


def _lag(step: Tally) -> Bar:
    if step.longest_lag is None:
        return Bar(step.since, None, "nothing was delivered")
    typical = in_words(step.lag or timedelta())
    return Bar(step.since, step.longest_lag.total_seconds(), f"{in_words(step.longest_lag)}, half within {typical}")
