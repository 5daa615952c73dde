"""What Celery's result of a delivery answers: Celery keeps none, and the ledger knows what became of it."""

from __future__ import annotations

from typing import Any, NoReturn

from celery.backends.base import DisabledBackend

from webhooks.errors import NotPossible


class NoResults(DisabledBackend):  # type: ignore[misc]
    """Answers whoever asks `.state`, `.result` or `.get()` of what `delay` returned with one line that says where."""

    def _elsewhere(self, asked: Any = None, *_: Any, **__: Any) -> NoReturn:
        event_id = getattr(asked, "id", asked)
        which = event_id if isinstance(event_id, str) else "ID"
        raise NotPossible(f"Celery keeps no results; what became of an event says: webhooks event show {which}")

    get_task_meta = get_state = get_status = get_result = get_traceback = get_children = _elsewhere
    add_pending_result = wait_for_pending = wait_for = get_many = iter_native = _elsewhere
    task_result_exists = forget = get_group_meta = ensure_chords_allowed = apply_chord = _elsewhere
