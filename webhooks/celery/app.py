"""The Celery application: what correctness depends on is set here, what a deployment tunes in `celeryconfig.py`."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader
from celery.utils.imports import cwd_in_path
from kombu.entity import Exchange, Queue

from webhooks.celery.logs import FOR_PROGRAMS
from webhooks.errors import SettingsError
from webhooks.observing.log import LogStyle
from webhooks.process import redis_url
from webhooks.process.ending import needing
from webhooks.settings import Settings, get_settings

DELIVERIES = "deliveries"
SLOW = "slow"  # deliveries to endpoints that are slow to answer
SWEEP = "sweep"
_FOR_PROGRAMS = dict.fromkeys(("worker_log_format", "worker_task_log_format"), FOR_PROGRAMS)
DELIVER, TICK, PRUNE = "webhooks.deliver", "webhooks.sweep", "webhooks.prune"  # the tasks


def celery_settings(settings: Settings) -> dict[str, Any]:
    """Return Celery's configuration. Raises SettingsError when a deployment's module would undo a guarantee."""
    required = _required(settings)
    tuned = _tuned(settings.celery_config)
    clash = sorted(required.keys() & tuned.keys())
    if clash:
        raise SettingsError(f"{settings.celery_config} may not set {', '.join(clash)}: deliveries depend on it")
    formats = _FOR_PROGRAMS if settings.log is LogStyle.JSON else {}
    return {**_recommended(), **tuned, **required, **formats}


def _required(settings: Settings) -> dict[str, Any]:
    tick = settings.sweep_interval.total_seconds()
    where = redis_url.read(settings.broker_url.get_secret_value())
    return {
        "broker_url": where.plain,
        "broker_read_url": where.plain,
        "broker_write_url": where.plain,
        "broker_use_ssl": dict(where.tls) or False,  # without it, kombu verifies no certificate
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_default_queue": DELIVERIES,
        "task_queues": [_queue(DELIVERIES), _queue(SLOW), _queue(SWEEP)],
        "task_routes": {  # they never wait behind deliveries
            TICK: {"queue": SWEEP},
            PRUNE: {"queue": SWEEP},
        },
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_ignore_result": True,
        "worker_send_task_events": True,  # Flower sees everything
        "enable_utc": True,
        "timezone": "UTC",
        "broker_transport_options": {
            # A message that is older runs again although its first copy still waits: settings.py keeps it long.
            "visibility_timeout": settings.visibility_timeout.total_seconds(),
            # A broker that is away must not hold up a producer: the ledger has the event, the sweep publishes it.
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "socket_connect_timeout": 2,
            # A worker's loop waits for an answer, and hears nothing else meanwhile.
            "socket_timeout": settings.broker_timeout.total_seconds(),
            "socket_keepalive": True,
            "health_check_interval": settings.broker_timeout.total_seconds(),
            # Two lists for each queue: what may wait lies in the other one, and workers take from both in turn.
            "priority_steps": [0, 3],
            # Before every key and channel of kombu's; the queues' names, which people type, stay as they are.
            "global_keyprefix": f"{settings.namespace}:" if settings.namespace else "",
        },
        "worker_consumer": "webhooks.celery.consuming:PersistentConsumer",
        "broker_channel_error_retry": True,  # a Redis that is full or read-only for a while ends no worker
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # It remembers nothing, so that several beats share no file. No message of these expires: beat's clock would say
        # when, a worker's clock whether, and where they differ no sweep would ever run.
        "beat_scheduler": "webhooks.celery.scheduling:PersistentScheduler",
        "beat_max_loop_interval": tick,
        "beat_schedule": {
            "sweep": {"task": TICK, "schedule": tick},
            "prune": {"task": PRUNE, "schedule": 60},
        },
    }


def _queue(name: str) -> Any:
    # By default Celery binds every queue to the same key, and each message would go to all of them.
    return Queue(name, Exchange(name), routing_key=name)  # type: ignore[no-untyped-call]


def _recommended() -> dict[str, Any]:
    return {
        "worker_pool": "webhooks.celery.pool:Pool",  # threads: the work is waiting for sockets
        "worker_concurrency": 40,  # several lanes: no one endpoint can take every place
        "worker_prefetch_multiplier": 1,
        "broker_pool_limit": 20,
        "worker_redirect_stdouts": False,
        "worker_enable_remote_control": True,
        "control_queue_ttl": 60,
        "event_queue_ttl": 60,
        "task_send_sent_event": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_proc_alive_timeout": 10,
    }


def _tuned(module: str | None) -> dict[str, Any]:
    if module is None:
        return {}
    try:
        with cwd_in_path():  # where celeryconfig.py lies, although Celery itself looks there for -A only
            found = import_module(module)
    except ImportError as error:
        raise SettingsError(f"WEBHOOKS_CELERY_CONFIG: cannot import {module}: {error}") from None
    return {name: value for name, value in vars(found).items() if name.islower() and not name.startswith("_")}


class Loader(AppLoader):  # type: ignore[misc]
    """Reads Celery's configuration from our settings when it is first needed, and from nowhere else.

    So importing this package needs no setting, and a CELERY_CONFIG_MODULE of the producer's own is not ours.
    """

    def read_configuration(self, env: str = "") -> dict[str, Any]:  # noqa: ARG002
        """Return the configuration; Celery calls this once."""
        return celery_settings(get_settings())


class App(Celery):  # type: ignore[misc]
    """A Celery application whose broker is ours, whatever is in the environment for somebody else's."""

    backend_cls = "webhooks.celery.results:NoResults"
    control_cls = "webhooks.celery.control:Control"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.user_options  # Celery has made an empty one

    @cached_property
    def user_options(self) -> Any:
        """What Celery's own command asks an application for, and nobody else: all that it needs is loaded here."""
        with needing("worker"):
            return import_module("webhooks.celery.commands").OPTIONS

    def _connection(self, _url: str, *args: Any, **options: Any) -> Any:
        # Celery would prefer a CELERY_BROKER_URL, which is there for an application of the producer's own.
        return super()._connection(self.conf["broker_url"], *args, **options)


app = App(
    "webhooks",
    loader=Loader,
    log="webhooks.celery.logs:Logs",
    include=[f"webhooks.celery.{name}" for name in ("tasks", "chores", "control", "inspecting", "starting")],
    set_as_current=False,
)
