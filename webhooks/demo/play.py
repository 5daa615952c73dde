"""The demo itself: set the stage, feed the events, wait for every outcome, and judge it by the rules."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography.fernet import Fernet

from webhooks import deliver, parts
from webhooks.accepting import reading
from webhooks.demo.cast import BORN_AGAIN, OPENERS, PAUSES, ROLES, SHORT_STEPS, Role, seconds
from webhooks.demo.embedded import Servers, free_port
from webhooks.demo.journey import Journey
from webhooks.demo.merchants import DemoMerchant
from webhooks.demo.stage import Stage, wait_until
from webhooks.demo.timeline import Timeline, read_timeline
from webhooks.errors import InvalidEvent, NotPossible
from webhooks.ledger import schema
from webhooks.model import Changes, State
from webhooks.policy.breaker import BreakerState

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Playing:
    """A demo that is under way."""

    environment: Mapping[str, str]
    flower: str
    login: str
    journeys: Sequence[Journey]
    timeline: Timeline


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read one JSON event a line, as many as the demo needs; raises InvalidEvent with the line's number."""
    try:
        # Not splitlines: JSON's strings may hold what it takes for the end of a line.
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise NotPossible(f"cannot read the events: {error}; give their file with --events") from None
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"the events are not UTF-8: byte {error.start} of {path}") from None
    events = [_event(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if len({event["id"] for event in events}) < len(events):
        raise InvalidEvent("the demo wants an id of its own for every event")
    if sum(event["merchant_id"] == BORN_AGAIN for event in events) < OPENERS:
        raise InvalidEvent(f"the demo wants {OPENERS} or more events for {BORN_AGAIN}: they open its breaker")
    return events


def _event(number: int, line: str) -> dict[str, Any]:
    known = [role.merchant_id for role in ROLES]
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"line {number}: not JSON: {error}") from None
    if not isinstance(event, dict) or event.get("merchant_id") not in known or "id" not in event:
        raise InvalidEvent(f"line {number}: the demo wants an object with an id and a merchant_id of {sorted(known)}")
    try:
        reading.read(event)
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error}") from None
    return event


@contextlib.contextmanager
def play(events: Sequence[dict[str, Any]], say: Say) -> Iterator[Playing]:
    """Play the demo; inside the `with` block everything is still running."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="webhooks-demo-")))
        say("starting Redis and PostgreSQL")
        servers = stack.enter_context(Servers())
        tls, ca = _certificates(folder)
        environment = _settings(servers, ca)
        merchants = {
            role.merchant_id: stack.enter_context(DemoMerchant(tls, secrets.token_urlsafe(24), role.answer))
            for role in ROLES
        }
        use_only(environment)
        _set_up(merchants, say)
        stage = stack.enter_context(Stage(folder, environment))
        port, login = free_port(), f"operator:{secrets.token_urlsafe(9)}"
        say("starting worker, beat and Flower")
        stage.worker()
        stage.beat()
        stage.flower(port, login)
        opened_at, closed_at = _feed(events, merchants, say)
        journeys = _journeys(events, merchants)
        born_again = [journey for journey in journeys if journey.role.merchant_id == BORN_AGAIN]
        timeline = read_timeline(opened_at, closed_at, born_again)
        yield Playing(environment, f"http://127.0.0.1:{port}", login, journeys, timeline)


def use_only(environment: Mapping[str, str]) -> None:
    """Run this process with these settings and with none of the person's own, who may work on a real system."""
    for name in [name for name in os.environ if name.upper().startswith("WEBHOOKS_")]:
        del os.environ[name]
    os.environ.update(environment)


def _certificates(folder: Path) -> tuple[ssl.SSLContext, Path]:
    authority = trustme.CA()
    path = folder / "demo-ca.pem"
    authority.cert_pem.write_to_path(str(path))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    return tls, path


def _settings(servers: Servers, ca: Path) -> dict[str, str]:
    return {
        "WEBHOOKS_DATABASE_URL": servers.postgres.url(),
        "WEBHOOKS_BROKER_URL": servers.redis.url,
        "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode(),
        "WEBHOOKS_CA_BUNDLE": str(ca),
        "WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
        "WEBHOOKS_SLOW_WAITS": seconds(SHORT_STEPS),
        "WEBHOOKS_BREAKER_PAUSE": str(PAUSES[0]),
        "WEBHOOKS_BREAKER_MAX_PAUSE": str(PAUSES[-1]),
    }


def _set_up(merchants: Mapping[str, DemoMerchant], say: Say) -> None:
    schema.upgrade(parts.database())
    say("registering the merchants")
    for role in ROLES:
        say(f"  {role.merchant_id:<9} {role.character}")
        if not role.registered_late:
            _register(role, merchants)


def _register(role: Role, merchants: Mapping[str, DemoMerchant]) -> None:
    merchant = merchants[role.merchant_id]
    parts.endpoints().set(role.merchant_id, Changes(url=merchant.url, secret=merchant.secret))


def _feed(
    events: Sequence[dict[str, Any]], merchants: Mapping[str, DemoMerchant], say: Say
) -> tuple[datetime, datetime]:
    """Accept all events and see them through; return when the breaker of the one that dies opened and closed."""
    dying = [event for event in events if event["merchant_id"] == BORN_AGAIN]
    openers, later = dying[:OPENERS], dying[OPENERS:]
    for event in [*(event for event in events if event not in dying), *openers]:
        deliver.delay(event)
    opened_at = _wait_for_breaker(BreakerState.PAUSED)
    say(f"{BORN_AGAIN}: its breaker is open")
    for event in later:
        deliver.delay(event)
    say(f"accepted {len(events)} events")
    for role in ROLES:
        if role.registered_late:
            _wait_until_held(role, sum(event["merchant_id"] == role.merchant_id for event in events))
            say(f"{role.merchant_id}: held for want of an address; setting it now")
            _register(role, merchants)
    closed_at = _wait_for_breaker(BreakerState.WORKING)
    say(f"{BORN_AGAIN}: its breaker is closed again")
    _wait_until_done(len(events), say)
    return opened_at, closed_at


def _wait_for_breaker(state: BreakerState) -> datetime:
    def is_there() -> bool:
        shown = parts.gate().show(BORN_AGAIN)
        return shown.state is state and shown.since is not None

    wait_until(is_there, f"the breaker of {BORN_AGAIN} is {state}")
    since = parts.gate().show(BORN_AGAIN).since
    assert since is not None  # noqa: S101 - is_there has looked
    return since


def _wait_until_held(role: Role, expected: int) -> None:
    def are_held() -> bool:
        return sum(parts.views().count_held(role.merchant_id).values()) == expected

    wait_until(are_held, f"{expected} deliveries of {role.merchant_id} are held")


def _wait_until_done(total: int, say: Say) -> None:
    told = 0

    def are_done() -> bool:
        nonlocal told
        counted = parts.views().count_by_state()
        done = counted[State.DELIVERED] + counted[State.FAILED]
        if done > told:
            say(f"{done} of {total} done")
            told = done
        return done == total

    wait_until(are_done, f"all {total} deliveries are done", timeout=60)


def _journeys(events: Sequence[dict[str, Any]], merchants: Mapping[str, DemoMerchant]) -> list[Journey]:
    roles = {role.merchant_id: role for role in ROLES}
    return [
        Journey(
            event=event,
            role=roles[event["merchant_id"]],
            history=parts.views().delivery(event["id"]),
            visits=merchants[event["merchant_id"]].visits_of(event["id"]),
        )
        for event in events
    ]
