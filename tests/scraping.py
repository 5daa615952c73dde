"""What a worker serves on its port for metrics, as whoever scrapes it reads it."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from webhooks.demo.embedded import free_port

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def free_ports(count: int) -> range:
    """Return ports of the loopback that follow each other and are free, as far as anybody can tell."""
    while True:
        first = free_port()
        ports = range(first, first + count)
        if ports[-1] < 1 << 16 and all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def text_of(port: int) -> str:
    """Return what is served on a port of the loopback."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def scraped(*ports: int) -> list[Samples]:
    """Return the samples of each port that answers."""
    found = []
    for port in ports:
        with contextlib.suppress(urllib.error.URLError):
            found.append(samples_in(text_of(port)))
    return found


def samples_in(text: str) -> Samples:
    """Read Prometheus' text."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def summed(processes: Iterable[Samples], name: str, **labels: str) -> float:
    """Return the sum of a metric over processes and all labels that are not given."""
    wanted = set(labels.items())
    return sum(each for of in processes for (its, having), each in of.items() if its == name and wanted <= having)


def names_in(samples: Samples) -> set[str]:
    """Return the names that there are."""
    return {name for name, _ in samples}


def labels_of(processes: Iterable[Samples], name: str, label: str | None = None) -> set[str]:
    """Return what the labels of a metric say, or one of them."""
    return {
        word for of in processes for its, having in of if its == name for key, word in having if label in {None, key}
    }
