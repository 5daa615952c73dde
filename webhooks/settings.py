"""Every setting, read once from `WEBHOOKS_…`, checked at start, printed masked.

There is one setting for each number of the rules, so that a test can run a 41-hour ladder in seconds with the
real code. Durations are seconds (`0.5`, `900`) or carry a unit (`250ms`, `15m`, `1h`, `30d`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, MultiFernet
from pydantic import BeforeValidator, Field, FilePath, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from webhooks.errors import SettingsError
from webhooks.observing.log import LogStyle
from webhooks.policy.breaker import MOST_IN_FLIGHT, BreakerRules
from webhooks.policy.ladders import Ladders
from webhooks.process import accounts, redis_url, smtp_url
from webhooks.process.once import once
from webhooks.process.spelling import (
    is_of_kubernetes,
    parse_duration,
    parse_durations,
    parse_networks,
    parse_ports,
    split,
)

_BREAKER, _LADDERS = BreakerRules(), Ladders()  # the rules' own numbers are the defaults

_NAMESPACE = re.compile(r"[\w.-]{0,64}", re.ASCII)


Duration = Annotated[timedelta, BeforeValidator(parse_duration), Field(gt=timedelta())]
Durations = Annotated[tuple[Duration, ...], NoDecode, BeforeValidator(parse_durations), Field(min_length=1)]
Keys = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split), Field(max_length=8)]
Ports = Annotated[tuple[int, ...], NoDecode, BeforeValidator(parse_ports)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(parse_networks)]


class Settings(BaseSettings):
    """What a process of this system runs with; frozen."""

    model_config = SettingsConfigDict(env_prefix="WEBHOOKS_", frozen=True, extra="ignore", env_ignore_empty=True)

    # where things are
    database_url: SecretStr
    broker_url: SecretStr = SecretStr("redis://localhost:6379/0")
    redis_url: SecretStr | None = None  # the gate's; by default the broker's
    namespace: str = ""  # tells apart what several deployments keep in one Redis
    secrets_key: SecretStr  # Fernet keys, newest first, separated by commas

    keys: Keys = ("payment_id", "external_id")  # fields of a body by which support finds its event
    ledger_timeout: Duration = timedelta(seconds=5)  # how long a producer waits for the ledger to accept an event

    # sending
    deadline: Duration = timedelta(seconds=10)
    allow_http: bool = False
    allow_private_addresses: bool = False
    allowed_networks: Networks = ()
    ca_bundle: FilePath | None = None
    proxy_url: SecretStr | None = None

    # the ladders and ages
    fast_waits: Durations = _LADDERS.fast_waits
    slow_waits: Durations = _LADDERS.slow_waits
    slow_ceiling: Duration = _LADDERS.slow_ceiling
    retry_after_cap: Duration = _LADDERS.retry_after_cap
    max_age: Duration = timedelta(days=30)

    # the breaker and the lane
    breaker_window: Duration = _BREAKER.window
    breaker_min_attempts: int = Field(_BREAKER.min_attempts, ge=1)
    breaker_failure_percent: int = Field(_BREAKER.failure_percent, ge=1, le=100)
    breaker_pause: Duration = _BREAKER.pause
    breaker_max_pause: Duration = _BREAKER.max_pause
    lane: int = Field(_BREAKER.lane, ge=1, le=MOST_IN_FLIGHT)
    narrow: int = Field(_BREAKER.narrow, ge=1, le=MOST_IN_FLIGHT)  # places for an endpoint that has yet to answer
    remembered_quick: Duration = _BREAKER.remembered_quick  # how long an answer speaks for an endpoint
    slow_after: Duration = _BREAKER.slow_after  # without an answer, an endpoint goes to the queue of the slow ones

    # how long finished deliveries keep their bodies and attempts
    keep_delivered: Duration = timedelta(days=30)
    keep_failed: Duration = timedelta(days=180)  # longer: they may be replayed

    # how the parts share the work
    lease_margin: Duration = timedelta(seconds=5)  # past the deadline, before a silent worker is given up
    horizon: Duration = timedelta(minutes=10)  # waits up to here travel as a countdown
    visibility_timeout: Duration = timedelta(hours=1)
    sweep_interval: Duration = timedelta(seconds=1)
    recover_after: Duration = timedelta(seconds=30)  # past its due time, before a lost message is published again
    max_queued: int = Field(1000, ge=1)  # how deep the sweep may fill the broker's queue
    broker_timeout: Duration = timedelta(seconds=5)  # for one answer of the broker, before its connection is given up
    celery_config: str | None = None  # a module that tunes Celery, such as celeryconfig
    log: LogStyle = LogStyle.TEXT

    # whom notices to operators go to, and when
    notice_url: SecretStr | None = None
    notice_secret: SecretStr | None = None  # signs what is sent there
    notice_command: SecretStr | None = None  # the program and its arguments; no shell reads it
    notice_mail: Words = ()
    notice_mail_from: str | None = None
    notice_smtp: SecretStr = SecretStr("smtp://localhost")
    notice_after: Duration = timedelta(days=1)  # a breaker has to be open for so long
    notices_per_hour: int = Field(20, ge=1)  # what is above is summed up

    # metrics
    metrics_port: Ports = ()  # a worker serves its own on the first of these that is free; none: it has none
    metrics_address: str = "127.0.0.1"
    metrics_interval: Duration = timedelta(seconds=5)  # between two readings of ledger, gate and broker, at least
    metrics_top: int = Field(0, ge=0, le=100)  # of so many endpoints that have most held their ids are told

    # the dashboard
    dashboard_users: SecretStr = SecretStr("")  # name:role:hash…, with commas between them
    dashboard_proxy: IPv4Address | IPv6Address | None = None  # whose word on HTTPS and on who asks is believed

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, value: SecretStr) -> SecretStr:
        if not re.match(r"postgresql(\+psycopg2)?://", value.get_secret_value()):
            raise ValueError("it is not a PostgreSQL URL such as postgresql://user:password@host/name")
        for url in _of_each_host(value.get_secret_value()):
            _well_formed(SecretStr(url))
        return value

    @field_validator("broker_url", "redis_url")
    @classmethod
    def _is_redis(cls, value: SecretStr | None) -> SecretStr | None:
        if value:
            redis_url.read(value.get_secret_value()).check_files()
        return value

    @field_validator("namespace")
    @classmethod
    def _fits_into_keys(cls, value: str) -> str:
        # Redis would read [ * ? as patterns, and { } as the part that chooses a node of a cluster.
        if not _NAMESPACE.fullmatch(value):
            raise ValueError("a namespace has up to 64 letters, digits, _ . or -, such as staging")
        return value

    @field_validator("dashboard_users")
    @classmethod
    def _are_operators(cls, value: SecretStr) -> SecretStr:
        accounts.read_accounts(value.get_secret_value())
        return value

    @field_validator("secrets_key")
    @classmethod
    def _are_fernet_keys(cls, value: SecretStr) -> SecretStr:
        try:
            _cipher(value)
        except ValueError as error:
            raise ValueError("it is not a Fernet key; make one with: webhooks secrets-key") from error
        return value

    @field_validator("notice_mail")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"[^@\s]+@[^@\s]+", each, re.ASCII) for each in value):
            raise ValueError("an address is such as ops@example.com, and several are separated by commas")
        return value

    @field_validator("notice_smtp")
    @classmethod
    def _is_smtp(cls, value: SecretStr) -> SecretStr:
        smtp_url.read(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.visibility_timeout <= self.horizon + self.deadline:
            # A message older than the visibility timeout is run again while its first copy still waits.
            raise ValueError("WEBHOOKS_VISIBILITY_TIMEOUT must exceed WEBHOOKS_HORIZON plus WEBHOOKS_DEADLINE")
        if self.breaker_max_pause < self.breaker_pause:
            raise ValueError("WEBHOOKS_BREAKER_MAX_PAUSE must not be shorter than WEBHOOKS_BREAKER_PAUSE")
        return self

    @property
    def gate_url(self) -> str:
        """The Redis of the gate."""
        return (self.redis_url or self.broker_url).get_secret_value()

    @property
    def lease(self) -> timedelta:
        """How long an attempt may hold its delivery before its worker counts as dead."""
        return self.deadline + self.lease_margin

    @property
    def ahead(self) -> timedelta:
        """How long before its due time a delivery is published: so near, that the next tick could come too late."""
        return 2 * self.sweep_interval

    @property
    def cipher(self) -> MultiFernet:
        """What encrypts merchants' secrets at rest: the first key writes, every key reads."""
        return _cipher(self.secrets_key)

    @property
    def ladders(self) -> Ladders:
        """The numbers of the ladders."""
        return Ladders(self.fast_waits, self.slow_waits, self.slow_ceiling, self.retry_after_cap)

    @property
    def breaker(self) -> BreakerRules:
        """The numbers of the breaker."""
        return BreakerRules(
            window=self.breaker_window,
            min_attempts=self.breaker_min_attempts,
            failure_percent=self.breaker_failure_percent,
            pause=self.breaker_pause,
            max_pause=self.breaker_max_pause,
            lease=self.lease,
            lane=self.lane,
            narrow=self.narrow,
            remembered_quick=self.remembered_quick,
            slow_after=self.slow_after,
        )


def _well_formed(url: SecretStr) -> SecretStr:
    """Refuse what a client would stumble over later, telling a piece of the password."""
    if not _is_clear(url.get_secret_value()):
        raise redis_url.unclear()
    return url


def _of_each_host(url: str) -> list[str]:
    """Return a PostgreSQL URL of several hosts (`h1:5432,h2:5432`) as one URL for each."""
    before, at, after = url.partition("://")[2].rpartition("@")
    hosts, slash, rest = after.partition("/")
    return [f"postgresql://{before}{at}{host}{slash}{rest}" for host in hosts.split(",")]


def _is_clear(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.port != 0 and parts.netloc.count("@") <= 1
    except ValueError:  # brackets that don't fit, or a port that is no number
        return False


def _cipher(keys: SecretStr) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in split(keys.get_secret_value())])


@once
def get_settings() -> Settings:
    """Return this process's settings.

    Raises SettingsError with one line that names every missing or malformed setting; values are not repeated,
    since a mistyped URL may hold a password.
    """
    _refuse_unknown({name.upper(): value for name, value in os.environ.items()})
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("; ".join(_complaint(dict(fault)) for fault in error.errors())) from None


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    """Refuse a mistyped name: a setting that silently does nothing is worse than none."""
    known = [f"WEBHOOKS_{name.upper()}" for name in Settings.model_fields]
    for name, value in environment.items():
        if name.startswith("WEBHOOKS_") and name not in known and not is_of_kubernetes(name, value):
            near = get_close_matches(name, known, n=1)
            raise SettingsError(f"{name} is not a setting" + (f"; did you mean {near[0]}?" if near else ""))


def _complaint(fault: dict[str, Any]) -> str:
    text = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"]:
        return text
    name = f"WEBHOOKS_{str(fault['loc'][0]).upper()}"
    return f"{name} is not set" if fault["type"] == "missing" else f"{name}: {text}"
