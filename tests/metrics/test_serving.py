"""One port a process: the first that is free of those that it may take."""

from __future__ import annotations

import socket

import pytest
from prometheus_client import Gauge
from prometheus_client.registry import CollectorRegistry

from tests.scraping import free_ports, scraped
from webhooks.metrics import serving


def measured(number: int) -> CollectorRegistry:
    """Return what a process measures that is told apart by a number."""
    registry = CollectorRegistry()
    Gauge("which", "Which process.", registry=registry).set(number)
    return registry


def test_each_process_takes_the_first_free_port() -> None:
    """Whoever asks all of them finds all processes."""
    ports = free_ports(3)
    taken = [serving.serve(measured(number), "127.0.0.1", ports) for number in (1, 2)]
    assert taken == list(ports[:2])
    assert [list(samples.values()) for samples in scraped(*ports)] == [[1], [2]]


@pytest.mark.parametrize("many", [1, 2])
def test_where_no_port_is_free_one_line_says_which_and_what_to_do(many: int) -> None:
    """Nothing is served, and somebody else's port stays theirs."""
    ports = free_ports(many)
    which = f"port {ports[0]} is" if many == 1 else f"the ports {ports[0]} to {ports[1]} are all"
    held = [socket.create_server(("127.0.0.1", port)) for port in ports]
    with pytest.raises(OSError, match=f"^{which} taken on 127.0.0.1; choose another by WEBHOOKS_METRICS_PORT"):
        serving.serve(measured(1), "127.0.0.1", ports)
    for each in held:
        each.close()


def test_an_address_that_is_not_this_machines_is_named() -> None:
    """No other port would be better."""
    with pytest.raises(OSError, match=r"^192\.0\.2\.1 port 9464: "):
        serving.serve(measured(1), "192.0.2.1", range(9464, 9470))


def test_no_resolver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker must not wait for one at its start."""

    def never(*_: object) -> str:
        raise AssertionError("somebody asked for a name")

    monkeypatch.setattr(socket, "getfqdn", never)
    ports = free_ports(1)
    serving.serve(measured(1), "127.0.0.1", ports)
    assert len(scraped(*ports)) == 1


def test_who_says_nothing_holds_up_nobody() -> None:
    """A scraper that hangs has a thread of its own."""
    ports = free_ports(1)
    serving.serve(measured(1), "127.0.0.1", ports)
    with socket.create_connection(("127.0.0.1", ports[0])):
        assert len(scraped(*ports)) == 1


def test_it_listens_where_it_is_told_to_and_nowhere_else() -> None:
    """On the loopback, and on none of the machine's other addresses."""
    ports = free_ports(1)
    serving.serve(measured(1), "127.0.0.1", ports)
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", ports[0])) != 0
