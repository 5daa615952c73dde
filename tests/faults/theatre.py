"""The drill's own system: servers, a proxy before Redis, merchants, and processes that a supervisor keeps alive."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Self

import psycopg2
from cryptography.fernet import Fernet
from redis import Redis

from tests.faults.addressees import ADDRESSEES, Addressee
from tests.faults.cast import Cast
from tests.faults.commands import CommandProxy
from tests.forks import Fork
from tests.merchant import TestCA
from tests.pgbouncer import PgBouncer
from webhooks import parts
from webhooks.demo.embedded import Servers
from webhooks.demo.stage import Program, Stage
from webhooks.errors import NotPossible
from webhooks.ledger import schema
from webhooks.model import Changes

MAX_QUEUED = 300
SETTINGS = {
    "DEADLINE": "3s",
    "LEASE_MARGIN": "1s",
    "RECOVER_AFTER": "3s",
    "HORIZON": "15s",
    "VISIBILITY_TIMEOUT": "25s",
    "MAX_QUEUED": str(MAX_QUEUED),
    "FAST_WAITS": "0.3,0.5,0.8,1,1.5,2,2,3,3",
    "SLOW_WAITS": "0.5,1,2,1,1",
    "SLOW_CEILING": "10m",
    "BREAKER_PAUSE": "2s",
    "BREAKER_MAX_PAUSE": "5s",
    "BREAKER_WINDOW": "20s",
}

_WATCH_FINAL_STATES = """
CREATE TABLE overwritten (id text, was text, became text, at timestamptz DEFAULT now());
CREATE FUNCTION note_overwritten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO overwritten (id, was, became) VALUES (OLD.id, OLD.state, NEW.state);
    RETURN NEW;
END $$;
CREATE TRIGGER final_stays AFTER UPDATE ON deliveries FOR EACH ROW
WHEN (OLD.state IN ('delivered', 'failed')
      AND (OLD.state, OLD.reason, OLD.finished_at, OLD.attempts)
          IS DISTINCT FROM (NEW.state, NEW.reason, NEW.finished_at, NEW.attempts))
EXECUTE FUNCTION note_overwritten();
"""

DELIVERERS = ("worker-1", "worker-2", "slow")

RANKS = ("deliveries", "deliveries\x06\x163")  # the queue as it lies in Redis: first tries, and what may wait

_ALL_QUICK = ("-Q", "deliveries", "-c", "10")
_TAKING = {"slow": ("-Q", "slow", "-c", "10"), "sweep": ("-Q", "sweep", "-c", "1")}


class Theatre:
    """Everything the drill plays on; leaving the `with` block ends what was started."""

    def __init__(self, seed: int, sabotage: str | None, *, pooled: bool = False) -> None:
        self._stack = contextlib.ExitStack()
        self._pooled = pooled
        self.pooler: PgBouncer | None = None
        self._sabotage = sabotage
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="webhooks-drill-")))
        self.servers = Servers()
        self.cast = Cast(TestCA(self.folder), seed)
        self.resting: set[str] = set()  # ended by the drill on purpose: the supervisor leaves them
        self.ended_by_themselves: list[tuple[str, datetime]] = []
        self.programs: dict[str, Program] = {}
        self._leave = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._set_the_stage()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        if parts.database.made:
            parts.database.made.dispose()

    def _set_the_stage(self) -> None:
        self._stack.enter_context(self.servers)
        if self._pooled:
            self.pooler = self._stack.enter_context(PgBouncer(self.servers.postgres.url()))
        self.proxy = self._stack.enter_context(CommandProxy(self.servers.redis.port))
        self.redis = self._stack.enter_context(Redis.from_url(self.servers.redis.url, socket_timeout=5))
        self._environ()
        schema.upgrade(parts.database())
        self.administer("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", _WATCH_FINAL_STATES)
        for addressee in ADDRESSEES.values():
            self._register(addressee)
        settings = {name: value for name, value in os.environ.items() if name.startswith("WEBHOOKS_")}
        self._stage = self._stack.enter_context(Stage(self.folder, settings, launch=Fork))
        for name in (*DELIVERERS, "sweep", "beat"):
            self.start(name, ready="beat: Starting..." if name == "beat" else " ready.")
        self._stack.callback(self._dismiss_supervisor)
        self._supervisor.start()

    def _register(self, addressee: Addressee) -> None:
        address = self._stack.enter_context(self.cast.start(addressee.endpoint_id)).url()
        changes = Changes(
            url=address,
            secret=addressee.secret,
            headers=addressee.headers,
            types=addressee.types,
            lane=addressee.lane,
            rate=addressee.rate,
        )
        if addressee.endpoint_id == addressee.merchant_id:
            parts.endpoints().set(addressee.merchant_id, changes)
        else:
            parts.endpoints().add(addressee.merchant_id, addressee.endpoint_id, changes)

    def _environ(self) -> None:
        """Give this process, whose threads are the producers, the settings of the system."""
        for name in [name for name in os.environ if name.startswith("WEBHOOKS_")]:
            del os.environ[name]
        os.environ |= {f"WEBHOOKS_{name}": value for name, value in SETTINGS.items()}
        os.environ |= {
            "WEBHOOKS_DATABASE_URL": (self.pooler or self.servers.postgres).url(),
            "WEBHOOKS_BROKER_URL": self.proxy.url,
            "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode(),
            "WEBHOOKS_CA_BUNDLE": str(self.folder / "test-ca.pem"),
            "WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
            "WEBHOOKS_CELERY_CONFIG": "tests.faults.window",
        }

    def administer(self, *statements: str) -> None:
        """Run statements as the database's administrator, on a connection of their own that may always write."""
        always = "-c default_transaction_read_only=off -c synchronous_commit=local"
        connection = psycopg2.connect(self.servers.postgres.url(), application_name="drill", options=always)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.close()

    def celery(self, name: str, *arguments: str, ready: str) -> Program:
        """Run a celery command in the system's environment, broken when there is a sabotage."""
        prefix = ("tests.faults.sabotage", self._sabotage) if self._sabotage else ("celery", "-A", "webhooks")
        return self._stage.run(name, "-m", *prefix, *arguments, ready=ready)

    def start(self, name: str, *, ready: str = "") -> None:
        """Start one of the five programs; without `ready` nobody waits for it."""
        if name == "beat":
            self.programs[name] = self.celery(name, "beat", "-l", "INFO", ready=ready)
        else:
            taking = _TAKING.get(name, _ALL_QUICK)
            self.programs[name] = self.celery(name, "worker", "-n", f"{name}@%h", "-l", "INFO", *taking, ready=ready)
        self.resting.discard(name)

    def end(self, name: str, how: Signals) -> None:
        """End a program on purpose, and wait until it is gone."""
        self.resting.add(name)
        self.programs[name].stop(how)

    def _supervise(self) -> None:
        """Start again what ended by itself, as systemd or an orchestrator would."""
        while not self._leave.wait(0.5):
            for name in self.programs.keys() - self.resting:
                process = self.programs[name].process
                if process is not None and process.poll() is not None:
                    self.ended_by_themselves.append((name, datetime.now(UTC)))
                    with contextlib.suppress(NotPossible):
                        self.start(name)

    def _dismiss_supervisor(self) -> None:
        self._leave.set()
        self._supervisor.join()
        for program in self.programs.values():
            program.send(Signals.SIGCONT)
