"""What templates need to write values for a person."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from flask import Flask, request
from markupsafe import Markup

from webhooks.operating.looking import Next
from webhooks.page import pictures, sessions
from webhooks.process.spans import in_words


def teach(application: Flask) -> None:
    """Give an application's templates their words."""
    application.jinja_env.filters.update(
        moment=moment, span=span, ago=ago, percent=percent, counted=counted, upcoming=upcoming
    )
    application.jinja_env.globals.update(
        visitor=sessions.visitor, form_token=sessions.form_token, link=link, here=here, pictures=pictures
    )


def moment(value: datetime | None) -> str | Markup:
    """Write a moment with its zone; the script shows beside it what that is on the reader's clock."""
    if value is None:
        return "–"
    utc = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def span(value: timedelta | None) -> str:
    """Write a duration."""
    return "–" if value is None else in_words(value)


def ago(value: datetime | None) -> str | Markup:
    """Write how long ago a moment was, or how far ahead it is."""
    if value is None:
        return "–"
    since = datetime.now(UTC) - value
    text = f"{_roughly(since)} ago" if since >= timedelta() else f"in {_roughly(-since)}"
    utc = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC", text
    )


def _roughly(span: timedelta) -> str:
    """Write a duration as a whole number of what fits."""
    steps = ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h"))
    seconds = span.total_seconds()
    size, unit = next(((size, unit) for limit, size, unit in steps if seconds < limit), (86400, "d"))
    return f"{seconds / size:.0f} {unit}"


def percent(value: float | None) -> str:
    """Write a share. What is not all is never told as all."""
    if value is None:
        return "–"
    return "100 %" if value == 1 else f"{min(value * 100, 99.9):.1f} %"


def counted(counts: Mapping[str, int]) -> str:
    """Write how many there are of what."""
    return ", ".join(f"{number:,} {what}" for what, number in counts.items() if number) or "none"


def link(path: str, **values: object) -> str:
    """Return a path with a query, without what is empty."""
    given = {name: value for name, value in values.items() if value not in {None, ""}}
    return f"{path}?{urlencode(given)}" if given else path


def upcoming(found: Next) -> Markup:
    """Say what comes next for a delivery, and when."""
    when = Markup(" ({}, {})").format(moment(found.at), ago(found.at)) if found.at else ""
    return Markup("{}{}").format(found.why, when)


def here(**changed: object) -> str:
    """Return the address of this page, with other values in its query."""
    return link(request.path, **{**request.args.to_dict(), **changed})
