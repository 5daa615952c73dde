"""The parts of one process, put together from its settings when they are first needed, and loaded then as well.

A command that reads the ledger waits neither for Celery nor for what sends; a worker loads all of it when it starts.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from webhooks import common
from webhooks.process.once import once
from webhooks.settings import get_settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from webhooks.accepting.accepting import Accepting
    from webhooks.celery.lookouts import Lookout
    from webhooks.delivery import Courier
    from webhooks.gate.gate import Gate
    from webhooks.gate.resilient import ResilientGate
    from webhooks.ledger.acts import Act
    from webhooks.ledger.audit import Audit
    from webhooks.ledger.backlog import Backlog
    from webhooks.ledger.desk import Desk
    from webhooks.ledger.endpoints import Endpoints
    from webhooks.ledger.leases import Lease, Pulse
    from webhooks.ledger.ledger import Ledger
    from webhooks.ledger.pings import Pings
    from webhooks.ledger.pruning import Pruning
    from webhooks.ledger.refusals import Refusals
    from webhooks.ledger.replays import Replays
    from webhooks.ledger.views import Views
    from webhooks.model import Operator
    from webhooks.process.waiting import Waits
    from webhooks.publishing import Publisher
    from webhooks.release import Release
    from webhooks.sweep import Sighting, Sweep
    from webhooks.wire.sender import Sender, SendingRules


observers, database = common.observers, common.database


def ledger() -> Ledger:
    """Return the ledger as producers and workers use it."""
    from webhooks import producing

    return producing.ledger()


def publisher() -> Publisher:
    """Return this process's way to the broker."""
    from webhooks import producing

    return producing.publisher()


def accepting() -> Accepting:
    """Return what accepts events."""
    from webhooks import producing

    return producing.accepting()


@once
def backlog() -> Backlog:
    """Return the ledger as the sweep uses it."""
    from webhooks.ledger.backlog import Backlog

    return Backlog(database(), recover_after=get_settings().recover_after)


@once
def sweep_lease() -> Lease:
    """Return what one sweep at a time holds."""
    from webhooks.ledger.leases import SWEEPING, Lease
    from webhooks.ledger.sweeping import SOMEBODY_IS_SILENT

    return Lease(database(), SWEEPING, asking=SOMEBODY_IS_SILENT)


@once
def pulse() -> Pulse:
    """Return what tells whether the ledger lives, and what was last done in it."""
    from webhooks.ledger.leases import Pulse

    return Pulse(database())


@once
def endpoints() -> Endpoints:
    """Return where events go."""
    from webhooks.ledger.endpoints import Endpoints

    return Endpoints(database(), get_settings().cipher)


@once
def views() -> Views:
    """Return the ledger as operators see it."""
    from webhooks.ledger.views import Views

    return Views(database(), recover_after=get_settings().recover_after)


@once
def gate() -> Gate:
    """Return the gate to every merchant."""
    from webhooks.gate.gate import Gate

    settings = get_settings()
    return Gate(settings.gate_url, settings.breaker, namespace=settings.namespace, observers=observers())


@once
def resilient_gate() -> ResilientGate:
    """Return the gate as workers use it: they go on without it when Redis is away."""
    from webhooks.gate.resilient import ResilientGate

    return ResilientGate(gate(), observers=observers())


@once
def replays() -> Replays:
    """Return what sends deliveries again, and cancels them."""
    from webhooks.ledger.replays import Replays

    return Replays(database(), max_age=get_settings().max_age)


@once
def desk() -> Desk:
    """Return what failed and nobody has dealt with."""
    from webhooks.ledger.desk import Desk

    return Desk(database())


@once
def pings() -> Pings:
    """Return what a test event is sent with."""
    from webhooks.ledger.pings import Pings

    return Pings(database(), get_settings().cipher)


@once
def pruning() -> Pruning:
    """Return what forgets long finished deliveries."""
    from webhooks.ledger.pruning import Pruning

    settings = get_settings()
    return Pruning(database(), keep_delivered=settings.keep_delivered, keep_failed=settings.keep_failed)


def act(by: Operator, unsure: str, look: str) -> AbstractContextManager[Act]:
    """Begin an operator's act: what it changes and its line in the audit count together; see `webhooks.ledger.acts`."""
    from webhooks.ledger import acts

    return acts.act(database(), by, unsure, look, observers())


@once
def audit() -> Audit:
    """Return the operators' record."""
    from webhooks.ledger.audit import Audit

    return Audit(database(), observers())


@once
def refusals() -> Refusals:
    """Return the record of events by name that were refused."""
    from webhooks.ledger.refusals import Refusals

    return Refusals(database())


def sending_rules() -> SendingRules:
    """Return what may be sent to, and for how long."""
    from webhooks.wire.sender import SendingRules

    settings = get_settings()
    return SendingRules(
        deadline=settings.deadline,
        allow_http=settings.allow_http,
        allow_private_addresses=settings.allow_private_addresses,
        allowed_networks=settings.allowed_networks,
        ca_bundle=settings.ca_bundle,
        proxy_url=settings.proxy_url.get_secret_value() if settings.proxy_url else None,
    )


@once
def sender() -> Sender:
    """Return what POSTs."""
    from webhooks.wire.sender import Sender

    return Sender(sending_rules())


@once
def waits() -> Waits:
    """Return who of this process waits for a merchant."""
    from webhooks.process.waiting import Waits

    return Waits()


@once
def stopping() -> threading.Event:
    """Return what is set when this process is told to stop."""
    return threading.Event()


@once
def lookout() -> Lookout:
    """Return what looks at the broker's queues."""
    from webhooks.celery import lookouts
    from webhooks.celery.app import app
    from webhooks.ledger.taken import Taken

    return lookouts.choose(get_settings().broker_url.get_secret_value(), app, Taken(database()))


@once
def courier() -> Courier:
    """Return what carries this process's deliveries."""
    from webhooks.celery import countdowns
    from webhooks.delivery import Courier
    from webhooks.process.clocks import WallClock
    from webhooks.process.strangers import Strangers
    from webhooks.wire.awaited import Awaited

    horizon = get_settings().horizon
    return Courier(
        ledger=ledger(),
        gate=resilient_gate(),
        sender=Awaited(sender(), waits()),
        ladders=get_settings().ladders,
        publisher=publisher(),
        release=release(),
        slowest_claim=get_settings().lease_margin,
        stopping=stopping(),
        wall_clock=WallClock(observers()),
        strangers=Strangers(observers()),
        observers=observers(),
        may_count_down=lambda wait: wait <= horizon and countdowns.has_room() and publisher().may_try(),
    )


@once
def sweeper() -> Sweep:
    """Return this process's sweep."""
    from webhooks.sweep import Sweep

    settings = get_settings()
    return Sweep(
        lease=sweep_lease(),
        backlog=backlog(),
        gate=resilient_gate(),
        publisher=publisher(),
        release=release(),
        look_at_queue=_look_at_deliveries,
        max_queued=settings.max_queued,
        interval=settings.sweep_interval,
        ahead=settings.ahead,
        observers=observers(),
    )


def _look_at_deliveries() -> Sighting:
    """Return how their queues stand; what is moved meanwhile from the one to the other is seen in the second."""
    from webhooks.celery.app import DELIVERIES, SLOW

    return lookout().look(DELIVERIES).beside(lookout().look(SLOW))


@once
def release() -> Release:
    """Return what lets held deliveries go."""
    from webhooks.release import Release

    return Release(resilient_gate(), backlog(), publisher(), observers())
