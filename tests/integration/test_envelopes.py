"""What is put on the broker is what Celery would have put there, at a fraction of the time."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.system import System
from webhooks.celery import envelopes, messages
from webhooks.celery.app import DELIVERIES, SLOW, app
from webhooks.model import Limits, Message

SOON = timedelta(seconds=30)
MESSAGE = Message("evt-1", "acme", "payment.status_changed", 0, datetime(2026, 1, 31, 12, 0, 0, 5, UTC))
LISTS = (DELIVERIES, SLOW, f"{DELIVERIES}\x06\x163", f"{SLOW}\x06\x163")


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    """Whatever a test sets, the next one finds the usual again: Celery, too, keeps what it has read of its settings."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    envelopes.are_ours.cache_clear()
    app.amqp.__dict__.pop("send_task_message", None)


@contextmanager
def by_celery(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have messages sent by Celery's own ways."""
    with monkeypatch.context() as patched:
        patched.setattr(messages, "are_ours", lambda _app: False)
        yield


def taken(system: System) -> dict[str, list[dict[str, Any]]]:
    """Take all messages from their lists, in the order in which workers would."""
    redis = system.redis()
    found = {name: [json.loads(each) for each in reversed(redis.lrange(name, 0, -1))] for name in LISTS}
    redis.delete(*LISTS)
    return {name: each for name, each in found.items() if each}


def comparable(envelope: dict[str, Any]) -> dict[str, Any]:
    """Leave out what differs each time: the tag, and the fractions of a second of when it is due."""
    assert envelope["properties"].pop("delivery_tag")
    if envelope["headers"]["eta"] is not None:
        due = datetime.fromisoformat(envelope["headers"]["eta"])
        assert abs(due - datetime.now(UTC) - SOON) < timedelta(seconds=20)
        envelope["headers"]["eta"] = due.utcoffset()
    return {**envelope, "body": json.loads(b64decode(envelope["body"]))}


@pytest.mark.parametrize("wait", [timedelta(), SOON])
@pytest.mark.parametrize(
    "message",
    [
        MESSAGE,
        replace(MESSAGE, id="evt-1~ep_shop", turn=7, slot="slot:1"),
        replace(MESSAGE, limits=Limits(lane=3)),
        replace(MESSAGE, limits=Limits(rate=0.5), may_wait=True),
        replace(MESSAGE, slow=True, slot="slot:2"),
        replace(MESSAGE, slow=True, may_wait=True),
        replace(MESSAGE, merchant_id='О\'Генри "и\\сыновья" 🧾', type="a 'type'"),
        replace(MESSAGE, merchant_id="é" * 200, type='"' * 200),
    ],
)
def test_it_is_what_celery_would_have_sent(
    system: System, monkeypatch: pytest.MonkeyPatch, message: Message, wait: timedelta
) -> None:
    """In the same list, and the same but for what is made up each time: an upgrade with another form fails here."""
    messages.publish(message, wait)
    ours = taken(system)
    with by_celery(monkeypatch):
        messages.publish(message, wait)
    celerys = taken(system)
    assert ours.keys() == celerys.keys()
    for name, envelopes_ in ours.items():
        assert [*map(comparable, envelopes_)] == [*map(comparable, celerys[name])]


def test_celerys_ways_are_not_taken(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for one message nor for several."""

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("by Celery's ways")

    monkeypatch.setattr(app, "send_task", never)
    messages.publish(MESSAGE, timedelta())
    messages.publish_all([MESSAGE, replace(MESSAGE, slow=True)], SOON)
    assert {name: len(found) for name, found in taken(system).items()} == {DELIVERIES: 2, SLOW: 1}


@pytest.mark.parametrize(
    ("setting", "value"), [("task_compression", "zlib"), ("task_protocol", 1), ("task_send_sent_event", True)]
)
def test_a_deployment_that_wants_another_form_has_it(
    system: System, monkeypatch: pytest.MonkeyPatch, setting: str, value: object
) -> None:
    """Celery itself makes its messages then."""
    sent: list[str] = []
    send_task = app.send_task

    def noting(name: str, *arguments: Any, **options: Any) -> Any:
        sent.append(name)
        return send_task(name, *arguments, **options)

    monkeypatch.setattr(app, "send_task", noting)
    monkeypatch.setitem(app.conf, setting, value)
    messages.publish_all([MESSAGE, MESSAGE], timedelta())
    assert sent == ["webhooks.deliver"] * 2
    assert len(taken(system)[DELIVERIES]) == 2


def test_many_keep_their_order_in_one_round_trip(system: System) -> None:
    """Each queue and rank for itself."""
    ids = [f"evt-{number}" for number in range(100)]
    several = [
        replace(MESSAGE, id=each, slow=number % 3 == 0, may_wait=number % 2 == 0) for number, each in enumerate(ids)
    ]
    messages.publish(MESSAGE, timedelta())
    taken(system)
    system.redis().config_resetstat()
    messages.publish_all(several, timedelta())
    stats = system.redis().info("commandstats")
    assert stats["cmdstat_lpush"]["calls"] == 4
    found = {name: [each["headers"]["id"] for each in envelopes_] for name, envelopes_ in taken(system).items()}
    assert found == {
        DELIVERIES: [each.id for each in several if not each.slow and not each.may_wait],
        SLOW: [each.id for each in several if each.slow and not each.may_wait],
        LISTS[2]: [each.id for each in several if not each.slow and each.may_wait],
        LISTS[3]: [each.id for each in several if each.slow and each.may_wait],
    }


@given(st.builds(Message, *[st.text(max_size=200)] * 3, st.integers(0), st.datetimes(timezones=st.just(UTC))))
def test_its_arguments_are_shown_as_celery_shows_them(message: Message) -> None:
    """Whatever is in the names."""
    from celery.utils.saferepr import saferepr  # noqa: PLC0415

    identity = {"id": message.id, "merchant_id": message.merchant_id, "type": message.type}
    assert envelopes._shown(identity) == saferepr((identity,), 1024)


@pytest.mark.parametrize("slow", [True, False])
def test_what_is_slow_is_read_as_slow(system: System, slow: bool) -> None:
    """Its header says so: the worker knows by it which way it came."""
    messages.publish(replace(MESSAGE, slow=slow), timedelta())
    ((envelope,),) = taken(system).values()
    (identity,), *_ = json.loads(b64decode(envelope["body"]))
    assert messages.read(identity, envelope["headers"]) == replace(MESSAGE, slow=slow)
