"""The whole system as a test sees it: settings, merchants, worker processes and the ledger to look into."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from cryptography.fernet import Fernet
from redis import Redis
from sqlalchemy import text

from tests import measuring
from tests.forks import Fork
from tests.merchant import Merchant, TestCA
from webhooks import parts
from webhooks.demo.embedded import Servers
from webhooks.demo.stage import Program, Stage, wait_until
from webhooks.errors import Unavailable
from webhooks.ledger.database import Database
from webhooks.model import Changes, State

SECRET = "a secret of the tests"

_commands = itertools.count()


def settings_of(database_url: str, redis_url: str, ca: TestCA) -> dict[str, str]:
    """Return the settings of a system on these servers, whose merchants are on the loopback."""
    return {
        "WEBHOOKS_DATABASE_URL": database_url,
        "WEBHOOKS_BROKER_URL": redis_url,
        "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode(),
        "WEBHOOKS_CA_BUNDLE": str(ca.pem),
        "WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
    }


class System:
    """Real servers, real processes, real merchants; leaving the `with` block ends what was started."""

    def __init__(
        self,
        servers: Servers,
        ca: TestCA,
        folder: Path,
        settings: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.servers = servers
        self.ca = ca
        self.folder = folder
        self._settings = settings
        self._monkeypatch = monkeypatch
        self._stack = contextlib.ExitStack()
        self._stage: Stage | None = None
        self.set()

    def set(self, **settings: object) -> None:
        """Change settings, by their lower-case names; before anything is started."""
        self._settings |= {f"WEBHOOKS_{name.upper()}": str(value) for name, value in settings.items()}
        for name, value in self._settings.items():
            self._monkeypatch.setenv(name, value)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the system's processes."""
        return {**os.environ, **self._settings}

    def merchant(self, merchant_id: str, *, registered: bool = True) -> Merchant:
        """Start a merchant, and register its address."""
        merchant = self._stack.enter_context(Merchant(self.ca))
        if registered:
            self.register(merchant_id, merchant)
        return merchant

    def keep(self, merchant: Merchant) -> Merchant:
        """Close a merchant of the test's own making in the end."""
        return self._stack.enter_context(merchant)

    def register(self, merchant_id: str, merchant: Merchant) -> None:
        """Set a merchant's address and secret."""
        parts.endpoints().set(merchant_id, Changes(url=merchant.url(), secret=SECRET))

    @property
    def stage(self) -> Stage:
        """Where worker, beat and Flower run."""
        if self._stage is None:
            self._stage = self._stack.enter_context(
                Stage(self.folder, self._settings, ending=measuring.ending(), launch=Fork)
            )
        return self._stage

    def start(self, *options: str) -> Program:
        """Start one worker and beat; returns the worker."""
        worker = self.stage.worker("worker", *options)
        self.stage.beat()
        return worker

    def run(self, *arguments: str, timeout: float = 30, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `python -m …` in the system's environment and return what it said."""
        number = next(_commands)
        given, output, errors = (self.folder / f"{number}.{name}" for name in ("stdin", "stdout", "stderr"))
        given.write_text(stdin or "")
        command = Fork(["-m", *arguments], self.environment, output, errors=errors, stdin=given, folder=self.folder)
        try:
            status = command.wait(timeout)
        finally:
            command.kill()
        return subprocess.CompletedProcess(arguments, status, output.read_text(), errors.read_text())

    def sql(self, statement: str, **values: object) -> Sequence[Any]:
        """Run a statement on the ledger."""
        return parts.database().rows(text(statement), values)

    @contextlib.contextmanager
    def ledger_away(self) -> Iterator[None]:
        """Have PostgreSQL refuse and cut every connection to the ledger, for as long as the block lasts."""
        name = urlsplit(self._settings["WEBHOOKS_DATABASE_URL"]).path.lstrip("/")
        self._administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self._administer(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        try:
            yield
        finally:
            self._administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    @contextlib.contextmanager
    def taking_no_writes(self) -> Iterator[None]:
        """Have every session of the ledger be read-only, as after a failover; those opened meanwhile stay so."""
        name = urlsplit(self._settings["WEBHOOKS_DATABASE_URL"]).path.lstrip("/")
        self._administer(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        self._administer(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        try:
            yield
        finally:
            self._administer(f"ALTER DATABASE {name} SET default_transaction_read_only = off")

    def _administer(self, statement: str) -> None:
        database = Database(self.servers.postgres.url(), connections=1)
        database.rows(text(statement))
        database.dispose()

    def redis(self) -> Any:
        """Return a client of the broker's database."""
        return self._stack.enter_context(Redis.from_url(self.servers.redis.url, decode_responses=True))

    def delivery(self, delivery_id: str) -> dict[str, Any]:
        """Return a delivery with its journey."""
        found = parts.views().delivery(delivery_id)
        journey = [asdict(made) for made in found.attempts]
        return {**asdict(found.delivery), "note": found.note, "journey": journey}

    def counted(self) -> dict[str, int]:
        """Return how many deliveries are in which state; states without any are left out."""
        return {state: count for state, count in parts.views().count_by_state().items() if count}

    def wait_for_state(self, state: State, *delivery_ids: str, timeout: float = 30) -> None:
        """Wait until all these deliveries are in a state."""
        self.wait_until(
            lambda: self._count(state, delivery_ids) == len(delivery_ids),
            f"{len(delivery_ids)} deliveries are {state}",
            timeout=timeout,
        )

    def _count(self, state: State, delivery_ids: Sequence[str]) -> int:
        (row,) = self.sql(
            "SELECT count(*) AS found FROM deliveries WHERE state = :state AND id = ANY(:ids)",
            state=state,
            ids=list(delivery_ids),
        )
        return int(row.found)

    def wait_for_count(self, state: State, count: int, *, timeout: float = 30) -> None:
        """Wait until so many deliveries are in a state."""
        self.wait_until(lambda: self.counted().get(state, 0) == count, f"{count} are {state}", timeout=timeout)

    def wait_until(self, condition: Callable[[], object], what: str, *, timeout: float = 30) -> None:
        """Wait for a condition; when it is not met, say how things stand."""

        def is_met() -> object:
            with contextlib.suppress(Unavailable):  # on a busy machine, asking may take too long once
                return condition()
            return False

        try:
            wait_until(is_met, what, timeout=timeout)
        except Exception as error:
            logs = "\n\n".join(f"{program.log.name}:\n{program.last_lines(40)}" for program in self.stage.programs)
            raise AssertionError(f"{error}\n{self.counted()}\n{logs}") from error

    def close(self) -> None:
        """End what was started: merchants, clients and processes."""
        self._stack.close()
        self._stage = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
