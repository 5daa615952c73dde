"""How durations, moments, ports, networks and lists are written, in settings and by people who type."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

_UNITS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
# What Kubernetes sets in every pod for a Service named webhooks or webhooks-…; WEBHOOKS_…_PORT only with such a value,
# since a person who writes WEBHOOKS_REDIS_PORT=6379 believes that it sets something.
_OF_KUBERNETES = re.compile(
    r"WEBHOOKS(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*"
    r"|WEBHOOKS(_\w+)?_PORT=(tcp|udp|sctp)://.*",
    re.ASCII | re.DOTALL,
)
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_NO_PORT = 1 << 16  # and none above it
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", re.ASCII)


def parse_duration(text: Any) -> Any:
    """Read `90`, `1.5`, `250ms`, `15m`, `1h` or `30d` as a timedelta; anything but text passes unchanged."""
    if not isinstance(text, str):
        return text
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a duration; write seconds or a number with ms, s, m, h or d, such as 15m")
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any duration can be") from None


def parse_moment(text: Any) -> Any:
    """Read `2026-01-31`, `2026-01-31T12:00`, UTC unless a zone is given, or how long ago it was: `90s`, `1h`.

    Anything but text passes unchanged. Raises ValueError, in a line.
    """
    if not isinstance(text, str):
        return text
    try:
        moment = _moment(text.strip())
    except (ValueError, OverflowError):
        wanted = "such as 2026-01-31 or 2026-01-31T12:00, nor how long ago one was, such as 90s, 15m, 1h or 7d"
        raise ValueError(f"{text[:100]!r} is not a moment {wanted}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _moment(text: str) -> datetime:
    if not text[-1:].isalpha() or text.endswith("Z"):  # a number without a unit may be meant as a year
        return datetime.fromisoformat(text)
    span: timedelta = parse_duration(text)
    return datetime.now(UTC) - span


def split(text: Any) -> Any:
    """Read what stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()] if isinstance(text, str) else text


def parse_durations(text: Any) -> Any:
    """Read several, with commas between them."""
    return [parse_duration(part) for part in split(text)]


def parse_ports(text: Any) -> Any:
    """Read `9464`, or `9464-9479` as those from the one to the other."""
    if not isinstance(text, str):
        return text
    if is_of_kubernetes("WEBHOOKS_METRICS_PORT", text):
        return ()
    match = _PORTS.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= last < _NO_PORT:
        raise ValueError("it is neither a port nor a range of them, such as 9464 or 9464-9479")
    return range(first, last + 1)


def parse_networks(text: Any) -> Any:
    """Read several, such as `10.0.0.0/8, fd00::/8`."""
    return [ip_network(part) for part in split(text)]


def is_of_kubernetes(name: str, value: str) -> bool:
    """Whether the platform set this variable, because some Service has a name like ours."""
    return _OF_KUBERNETES.fullmatch(f"{name}={value}") is not None
