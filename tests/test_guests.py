"""A producer's own Celery application, in whose processes this package is a guest."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
from celery import Celery, current_app
from celery.signals import worker_init, worker_ready
from celery.worker import state as worker_state
from celery.worker.control import Panel

from webhooks import app
from webhooks.celery import control as _control  # noqa: F401 - what a worker of ours loads
from webhooks.celery import starting as _starting  # noqa: F401 - the same
from webhooks.process.once import once


class _Worker:
    """What Celery's signals are told of a worker."""

    def __init__(self, its_app: Celery) -> None:
        self.app = its_app


THEIRS = Celery("theirs", broker="memory://", set_as_current=False)


def test_ours_is_not_the_current_application() -> None:
    """Importing this package leaves a producer's current application alone."""
    assert current_app._get_current_object() is not app


@pytest.mark.parametrize(("theirs", "revoked"), [(True, True), (False, False)], ids=["theirs", "ours"])
def test_a_producers_workers_keep_their_revoke(theirs: bool, revoked: bool) -> None:
    """A revoke is refused in our workers only."""
    task_id = f"a task of {theirs}"
    answer = Panel.data["revoke"](SimpleNamespace(app=THEIRS if theirs else app), task_id=[task_id])
    assert (task_id in worker_state.revoked) is revoked
    assert ("error" in answer) is not revoked


def test_a_producers_worker_starts_without_our_ledger() -> None:
    """Where only a producer's worker starts, our settings and tables are not asked for."""
    once.forget_all()
    worker_init.send(sender=_Worker(THEIRS))


@pytest.mark.parametrize("its_app", [THEIRS, app], ids=["theirs", "ours"])
def test_what_a_worker_of_ours_starts_with_is_not_looked_through_again(its_app: Celery) -> None:
    """By the garbage collector, for which all threads stand still; of a producer's worker it is their business."""
    gc.unfreeze()
    try:
        worker_ready.send(sender=_Worker(its_app))
        assert (gc.get_freeze_count() > 1000) is (its_app is app)
    finally:
        gc.unfreeze()


def test_a_producers_celery_settings_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CELERY_CONFIG_MODULE of the process configures its own application, not ours."""
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "no_such_module_of_theirs")
    monkeypatch.setenv("WEBHOOKS_DATABASE_URL", "postgresql://localhost/none")
    monkeypatch.setenv("WEBHOOKS_SECRETS_KEY", "4o3q0b9Hn0cZ0m8i1b7yqV0m7o2Jm0f5p1d6a8s9d0E=")
    assert app.loader.read_configuration()["task_default_queue"] == "deliveries"
