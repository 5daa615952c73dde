"""The stack of docker-compose.yml in containers: its images, commands and settings bring an event to the ledger."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml
from cryptography.fernet import Fernet
from pytest_celery import CeleryTestContainer, CeleryWorkerContainer, RedisContainer
from pytest_docker_tools import build, container, fxtr

from webhooks.demo.stage import wait_until

ROOT = Path(__file__).parent.parent
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
GIVEN = {"POSTGRES_PASSWORD": "password", "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode()}
ACCEPT = """
from webhooks import deliver
deliver.delay({"id": "evt-1", "type": "refund.completed", "merchant_id": "nobody"})
"""


def environment_of(service: str) -> dict[str, str]:
    """Return a service's environment, with what a person has to give."""
    return {
        name: re.sub(r"\$\{(\w+)(:\?[^}]*)?\}", lambda found: GIVEN[found[1]], value)
        for name, value in SERVICES[service]["environment"].items()
    }


@pytest.fixture(scope="session")
def docker_client() -> Any:
    """The Docker engine; where there is none, nothing here can run."""
    try:
        client = docker.from_env()
        client.ping()
    except docker.errors.DockerException:
        pytest.skip("no Docker engine answers here: the smoke test of the compose file runs where one does")
    return client


@pytest.fixture
def default_redis_broker_image() -> str:
    """The broker's image is the compose file's."""
    return str(SERVICES["redis"]["image"])


@pytest.fixture
def default_redis_broker_command() -> list[str]:
    """So is its command."""
    return shlex.split(SERVICES["redis"]["command"])


class Postgres(CeleryTestContainer):  # type: ignore[misc]
    """The ledger's server."""

    def ready(self) -> bool:
        """Whether it takes connections; while it sets itself up it does so on its socket only."""
        self.reload()
        return bool(self.exec_run("pg_isready --host 127.0.0.1 --username webhooks").exit_code == 0)


class Done(CeleryTestContainer):  # type: ignore[misc]
    """A container that does something and ends."""

    def ready(self) -> bool:
        """Whether it has ended well."""
        self.reload()
        return bool(self.status == "exited" and self.attrs["State"]["ExitCode"] == 0)


image = build(path=str(ROOT))
postgres = container(
    image=SERVICES["postgres"]["image"],
    environment=environment_of("postgres"),
    network="{default_pytest_celery_network.name}",
    wrapper_class=Postgres,
    timeout=60,
)


@pytest.fixture
def settings(default_redis_broker: RedisContainer, postgres: Postgres) -> dict[str, str]:
    """The services' environment; in this network the servers go by other names."""
    names = {
        "@postgres/": f"@{postgres.attrs['Config']['Hostname']}/",
        "//redis:": f"//{default_redis_broker.hostname}:",
    }
    found = environment_of("worker")
    for name, here in names.items():
        found = {key: value.replace(name, here) for key, value in found.items()}
    return found


migrate = container(
    image="{image.id}",
    command=SERVICES["migrate"]["command"],
    environment=fxtr("settings"),
    network="{default_pytest_celery_network.name}",
    wrapper_class=Done,
    timeout=60,
)
worker = container(
    image="{image.id}",
    command=SERVICES["worker"]["command"],
    environment=fxtr("settings"),
    network="{default_pytest_celery_network.name}",
    wrapper_class=CeleryWorkerContainer,
    timeout=60,
)


@pytest.mark.docker
def test_the_stack_takes_an_event(migrate: Done, worker: CeleryWorkerContainer) -> None:
    """An event for nobody is accepted in the image, taken by the worker, and held in the ledger for an address."""
    accepted = worker.exec_run(["python", "-c", ACCEPT])
    assert accepted.exit_code == 0, accepted.output.decode()
    wait_until(
        lambda: b"held for address" in worker.exec_run(["webhooks", "delivery", "list"]).output,
        f"the worker has taken the event:\n{worker.logs()}",
    )
