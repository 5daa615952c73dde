"""A Redis behind TLS: its certificate is verified by broker and gate alike, and a login may hold any character."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

import pytest
from celery import Celery
from flower.utils.broker import Broker

from tests.command import run
from tests.merchant import TestCA
from tests.system import System
from tests.tls import TlsFront
from webhooks import deliver
from webhooks.celery.app import DELIVERIES, Loader
from webhooks.celery.lookouts import Peeking
from webhooks.errors import BrokerUnavailable, GateUnavailable, SettingsError
from webhooks.gate.gate import Gate
from webhooks.model import State
from webhooks.policy.breaker import BreakerRules
from webhooks.settings import get_settings

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme", "id": "evt-1"}
LOGIN = "shop:p@ss/w:o#r?d%;+ü"


@pytest.fixture
def front(system: System, ca: TestCA) -> Iterator[TlsFront]:
    """The broker's Redis, reached by TLS as localhost."""
    with TlsFront(system.servers.redis.port, ca.context("localhost")) as running:
        yield running


def ask_both(system: System, url: str) -> tuple[str, str]:
    """Ask the gate and the broker at a URL; returns what each complains of."""
    system.set(broker_url=url)
    get_settings.forget()
    with Celery("fresh", loader=Loader, set_as_current=False) as fresh:
        return (
            complaint(lambda: Gate(get_settings().gate_url, BreakerRules()).show("acme")),
            complaint(lambda: Peeking(fresh).look(DELIVERIES)),
        )


def complaint(ask: Callable[[], object]) -> str:
    """Ask, and return the fault if there is one."""
    try:
        ask()
    except (BrokerUnavailable, GateUnavailable) as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize("how", ["", "required", "CERT_REQUIRED", "optional", "CERT_OPTIONAL"])
def test_both_refuse_a_certificate_that_nobody_vouches_for(system: System, front: TlsFront, how: str) -> None:
    """The password is sent to nobody but the Redis that is meant, unless the URL says that it may."""
    url = f"rediss://localhost:{front.port}/0" + (f"?ssl_cert_reqs={how}" if how else "")
    for told in ask_both(system, url):
        assert "CERTIFICATE_VERIFY_FAILED" in told


@pytest.mark.parametrize("how", ["none", "CERT_NONE"])
def test_both_can_be_told_not_to_verify(system: System, front: TlsFront, how: str) -> None:
    """In either spelling."""
    assert ask_both(system, f"rediss://localhost:{front.port}/0?ssl_cert_reqs={how}") == ("", "")


def test_both_trust_the_authority_that_the_url_names(system: System, front: TlsFront, ca: TestCA) -> None:
    """And still want the certificate to be the host's, unless the URL says otherwise."""
    trusted = f"ssl_ca_certs={quote(str(ca.pem))}"
    assert ask_both(system, f"rediss://localhost:{front.port}/0?{trusted}") == ("", "")
    for told in ask_both(system, f"rediss://127.0.0.1:{front.port}/0?{trusted}"):
        assert "CERTIFICATE_VERIFY_FAILED" in told
    # In another database: kombu would take the connection from above.
    assert ask_both(system, f"rediss://127.0.0.1:{front.port}/1?{trusted}&ssl_check_hostname=false") == ("", "")


@pytest.fixture
def login(system: System) -> Iterator[str]:
    """An ACL user whose password needs encoding, as it stands in a URL; nobody else may log in meanwhile."""
    user, password = LOGIN.split(":", 1)
    system.redis().acl_setuser(
        user, enabled=True, passwords=[f"+{password}"], keys="*", channels="*", commands=["+@all"]
    )
    yield f"{user}:{quote(password, safe='')}"
    system.redis().acl_deluser(user)


def test_a_delivery_by_tls_and_login(system: System, front: TlsFront, ca: TestCA, login: str) -> None:
    """Producer, worker, sweep, gate, remote control and Flower's queues: one URL serves them all."""
    system.set(broker_url=f"rediss://{login}@localhost:{front.port}/0?ssl_ca_certs={quote(str(ca.pem))}")
    merchant = system.merchant("acme")
    with Celery("fresh", loader=Loader, set_as_current=False) as fresh:
        assert asyncio.run(flowers_queues(fresh)) == [{"name": DELIVERIES, "messages": 0}]
        worker = system.start()
        fresh.send_task("webhooks.deliver", args=[EVENT])
    system.wait_for_state(State.DELIVERED, EVENT["id"])
    assert len(merchant.requests) == 1
    shown = system.run("celery", "-A", "webhooks", "inspect", "breaker", "acme", "--json").stdout
    assert '"successes": 1' in shown
    logged = worker.log.read_text() + shown
    assert "gate.away" not in logged
    assert "p@ss" not in unquote(logged)


async def flowers_queues(app: Celery) -> list[dict[str, object]]:
    """Ask for the queue's depth as Flower's page of the broker does."""
    uri, conf = app.connection_for_read().as_uri(include_password=True), app.conf
    ways = {"broker_options": conf.broker_transport_options, "broker_use_ssl": conf.broker_use_ssl}
    found: list[dict[str, object]] = await Broker(uri, http_api=None, **ways).queues([DELIVERIES])
    return found


@pytest.mark.parametrize("mistake", ["db=0", "ssl_cert_reqs=bogus"])
def test_a_parameter_that_says_nothing_is_one_line_at_start(system: System, mistake: str) -> None:
    """For worker, command and producer alike: one client would have ignored it, and the other have used it."""
    system.set(broker_url=f"rediss://localhost:1/0?{mistake}")
    started = system.run("celery", "-A", "webhooks", "worker")
    typed = run("status")
    assert (started.returncode, started.stderr) == (typed.exit_code, typed.stderr)
    assert (typed.exit_code, len(typed.stderr.splitlines())) == (2, 1)
    assert "WEBHOOKS_BROKER_URL: its parameter" in typed.stderr
    with pytest.raises(SettingsError, match="WEBHOOKS_BROKER_URL: its parameter"):
        deliver.delay(EVENT)
