"""Asking the workers what they do: who answers, from which queues each takes messages, and for how long none came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from webhooks.celery import broker
from webhooks.celery.app import app

_SOON_S, _LATER_S = 1.0, 3.0


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker says of itself; `quiet` is how long it has taken nothing from each of its queues."""

    queues: Sequence[str]
    cancelled: Sequence[str]  # that it was started with, and takes nothing from any more
    quiet: Mapping[str, timedelta]
    room: bool  # for another message
    says: bool = True  # a worker of an earlier release does not know the question


def look_at_workers(names: Sequence[str]) -> Mapping[str, Worker]:
    """Ask some workers, or all; return those that answer within a second of each other. Raises BrokerUnavailable.

    Where nobody answers, or one that was named does not, they are asked once more with more time: they may be busy.
    """
    said = _ask(names, _SOON_S)
    if not said or set(names) - said.keys():
        said |= _ask(names, _LATER_S)
    return {name: _worker(said[name]) for name in sorted(said)}


def _ask(names: Sequence[str], timeout_s: float) -> dict[str, Mapping[str, Any]]:
    replies = broker.ask(app, "consuming", names, patience_s=timeout_s)
    return {name: answer for reply in replies for name, answer in reply.items()}


def _worker(said: Mapping[str, Any]) -> Worker:
    if "queues" not in said:
        return Worker((), (), {}, room=True, says=False)
    quiet = {queue: timedelta(seconds=seconds) for queue, seconds in said["quiet_s"].items()}
    return Worker(said["queues"], said["cancelled"], quiet, said["room"])
