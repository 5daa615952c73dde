"""A number is written once in the code, and where a document states one it is that of the code."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

import celeryconfig
from webhooks import delivery
from webhooks.accepting import bursts
from webhooks.celery import app as celery_app
from webhooks.celery import broker, consuming, countdowns, places, pool
from webhooks.cli.merchants import rotate_secret
from webhooks.health import judging
from webhooks.ledger import audit, database, noticing, sweeping, taken
from webhooks.ledger.leases import Lease, Pulse
from webhooks.metrics import metering
from webhooks.observing import outage
from webhooks.page import limiting, overview, rounds, sessions
from webhooks.policy.breaker import BreakerRules
from webhooks.policy.decisions import AFTER_OUR_FAULT
from webhooks.policy.ladders import Ladders
from webhooks.settings import Settings
from webhooks.telling import running, teller
from webhooks.wire.adapter import KEPT_BODY
from webhooks.wire.answer import MAX_BODY
from webhooks.wire.sender import SendingRules

ROOT = Path(__file__).parent.parent
WORDS = {1: "one", 2: "two", 3: "three", 5: "five", 10: "ten", 20: "twenty", 100: "a hundred"}

OURS = Settings.model_construct()
RULES = OURS.breaker
THREADS = celery_app._recommended()["worker_concurrency"]


def s(span: timedelta | float) -> str:
    """Write whole seconds as figures."""
    return f"{span.total_seconds() if isinstance(span, timedelta) else span:g}"


def spelled(number: float | timedelta) -> str:
    """Write a small number, or so many seconds, as a word."""
    number = int(number.total_seconds() if isinstance(number, timedelta) else number)
    return WORDS.get(number, str(number))


def one(unit: timedelta, span: timedelta, words: str) -> str:
    """Return words that say one of a unit, if a span is that."""
    return words if span == unit else f"{words}: but it is {span}"


def step(wait: timedelta) -> str:
    """Write a step of the slow ladder."""
    minutes = int(wait.total_seconds() / 60)
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"


def default(function: Any, name: str) -> Any:
    """Return a parameter's default."""
    return inspect.signature(function).parameters[name].default


def minutes(span: timedelta) -> int:
    """Return whole minutes."""
    return int(span.total_seconds() / 60)


def pauses() -> str:
    """Write the breaker's pauses, each twice as long as the one before, up to the longest."""
    spans = [min(OURS.breaker_pause * 2**n, OURS.breaker_max_pause) for n in range(5)]
    return ", ".join(str(minutes(span)) for span in spans)


BURIED = OURS.deadline + OURS.lease_margin + sweeping.LAST_CHANCE + OURS.sweep_interval
OVERLAP = next(option.default for option in rotate_secret.params if option.name == "overlap")

SAID = {
    "README.md": [
        f"| fast | 5xx, 429, network, timeout | {', '.join(map(s, OURS.fast_waits))} s |",
        f"{', '.join(map(step, OURS.slow_waits))}; no step past {step(OURS.slow_ceiling)} from the first 4xx",
        one(timedelta(hours=1), OURS.retry_after_cap, "can lengthen a wait, up to an hour"),
        f"At {OURS.max_age.days} days of age",
        f"at {OURS.breaker_min_attempts} or more attempts within {minutes(OURS.breaker_window)} minutes of which",
        f"minutes of which {OURS.breaker_failure_percent} % had no answer",
        f"{minutes(OURS.breaker_pause)} minutes, doubled by each failed probe",
        f"by each failed probe, {minutes(OURS.breaker_max_pause)} at most",
        f"anybody for an answer of Redis; {s(OURS.broker_timeout)} s each",
        f"anybody for an answer of Redis; {s(OURS.ledger_timeout)} s each",
    ],
    "docs/operations.md": [
        f"a lost message is published again {s(OURS.recover_after)} s after its delivery's due time",
        f"within {s(OURS.recover_after)} s of its due time",
        f"taken back {s(BURIED)} s after the attempt began (deadline {s(OURS.deadline)} s, margin ",
        f"margin {s(OURS.lease_margin)} s, last chance {s(sweeping.LAST_CHANCE)} s, a tick)",
        f"taken back within {s(BURIED)} s",
        f"a growing rest of up to {minutes(sweeping.LONGEST_REST)} min",
        f"tried again after {s(AFTER_OUR_FAULT)} s with nothing charged",
        f"it finishes what it is sending, up to {s(OURS.deadline)} s",
        f"`status` and health checks: no sweep for {s(judging.FRESH)} s",
        f"| never, or not for {s(judging.FRESH)} s |",
        f"when no beat of this host has sent its sweep for {s(broker.BELIEVED)} s",
        f"its lease runs out after {s(default(Lease, 'lasts'))} s",
        f"and are back within {s(consuming._LONGEST_S)} s",
        f"after twice `WEBHOOKS_BROKER_TIMEOUT` ({s(OURS.broker_timeout)} s)",
        f"opens after {spelled(OURS.breaker_min_attempts)} failed attempts of which {OURS.breaker_failure_percent} %",
        f"one probe a cycle after {pauses()} … minutes",
        f"are held, up to {OURS.max_age.days} days",
        f"refused, or not within {s(default(Pulse.check_write, 'within'))} s",
        one(timedelta(minutes=1), judging.OVERDUE, "| above a minute |"),
        one(timedelta(minutes=1), judging.QUIET, "one has taken nothing for a minute"),
        f"{THREADS} places each, of which one endpoint takes at most {OURS.lane} (`WEBHOOKS_LANE`)",
        f"go after {OURS.keep_delivered.days} days, of failed ones after {OURS.keep_failed.days}",
        f"for {(OURS.keep_failed + OURS.max_age).days} days: {OURS.keep_failed.days}, and the {OURS.max_age.days} that",
        f"up to {KEPT_BODY // 1024} KiB of what a merchant answered",
        f"reads every {s(OURS.metrics_interval)} s (`WEBHOOKS_METRICS_INTERVAL`)",
        f"has been open for {int(OURS.notice_after.total_seconds()) // 3600} h (`WEBHOOKS_NOTICE_AFTER`)",
        f"Of more than {OURS.notices_per_hour} in an hour (`WEBHOOKS_NOTICES_PER_HOUR`)",
        f"ended with its children after {s(running._PATIENCE)} s",
        one(timedelta(minutes=1), teller._EVERY, "Once a minute one process looks for new ones"),
        one(timedelta(hours=1), noticing._LONGEST, "after a minute at first and an hour at most"),
        one(timedelta(days=1), noticing.NOTICE_REST, "and an hour at most, for a day, and not"),
        f"any session ends after {sessions.LASTS.total_seconds() / 3600:g} hours",
        f"After {limiting.MOST_OF_ADDRESS} failed logins from an address within {minutes(limiting.WINDOW)} minutes",
        f"For {str(OVERLAP).removesuffix('h')} hours (`--overlap`)",
    ],
    "docs/decisions.md": [
        f"up to {countdowns._MOST:,} in one process",
        f"{s(database._PATIENCE)} s, and {s(OURS.ledger_timeout)} s (`WEBHOOKS_LEDGER_TIMEOUT`) for a producer",
        f"It waits {s(OURS.broker_timeout)} s for an answer of the broker",
        f"({OURS.lane} by default, of {THREADS} places in a worker)",
        f"not answered for {s(RULES.remembered_quick)} s has a width of {spelled(RULES.narrow)} places",
        one(timedelta(seconds=1), RULES.slow_after, "nothing came from the endpoint for a second while"),
        one(timedelta(seconds=1), RULES.slow_after, "is unanswered for a second, or as long as its pace is a second"),
        f"up to {pool.MOST_WAITING} in one process (`webhooks/celery/pool.py`)",
        f"The lease lasts {spelled(default(Lease, 'lasts'))} seconds",
        f"only {spelled(sweeping.LAST_CHANCE)} seconds later takes it back",
        f"is put back every {spelled(AFTER_OUR_FAULT)} seconds",
        f"it is tried again after {spelled(AFTER_OUR_FAULT)} seconds",
        f"A note is believed for {spelled(taken._LATELY)} seconds",
        f"with the ids**, {spelled(audit._IDS_IN_A_LINE)} in a line of the audit",
        f"followed by {spelled(metering._SHARE)} times as long without one",
        f"not older than {spelled(default(audit.Audit.once, 'within'))} seconds",
        one(timedelta(seconds=1), outage.PAUSE, "A second of rest between two tries"),
        f"read at most {MAX_BODY // 1024} KiB of what comes",
        f"at or past {OURS.max_age.days} days is not taken",
        one(timedelta(seconds=1), SendingRules().body_time, "After the verdict a body has a second"),
        one(timedelta(hours=1), SendingRules().session_time, "for an hour from that check on"),
        f"up to {SendingRules().idle_connections:,}, and a quarter of the descriptors",
        f"each for up to {s(SendingRules().idle_time)} s, since load balancers",
        f"More than {bursts.MOST_AT_ONCE} events in one call",
        f"a round of questions at most every {spelled(rounds._FRESH_S)} seconds",
        f"shared by all who look within {spelled(overview._FRESH_S)} seconds",
        f"a process works on {spelled(places._BESIDE_FIRST_TRIES)} deliveries at once that may wait",
    ],
}


@pytest.mark.parametrize(("document", "words"), [(name, words) for name, said in SAID.items() for words in said])
def test_documents_state_the_codes_numbers(document: str, words: str) -> None:
    """Each of these sentences, made with the code's number, stands in its document."""
    assert words in (ROOT / document).read_text(encoding="utf-8")


def test_the_parts_defaults_are_those_of_the_settings() -> None:
    """Whoever makes a part without settings, as tests do, gets the product's numbers."""
    unset = Settings(database_url="postgresql://h/d", secrets_key=Fernet.generate_key().decode())
    assert unset.breaker == BreakerRules()
    assert unset.ladders == Ladders()
    assert unset.deadline == SendingRules().deadline


def test_the_module_that_tunes_celery_begins_with_what_is_recommended() -> None:
    """So a deployment that copies it changes nothing by that."""
    tuned = {name: value for name, value in vars(celeryconfig).items() if name in celery_app._recommended()}
    assert tuned
    assert tuned == {name: celery_app._recommended()[name] for name in tuned}


def test_numbers_that_need_each_other_fit() -> None:
    """Where one bound rests on another: shortening either alone would break a promise in silence."""
    assert sweeping.LAST_CHANCE.total_seconds() > 2 * delivery._LONGEST_LEDGER_WAIT
    assert OURS.deadline < database._PATIENCE
    assert OURS.recover_after > BURIED
    assert sum(OURS.fast_waits, timedelta()) < OURS.horizon  # the whole fast ladder travels as countdowns
    assert OURS.lane < THREADS
