"""How things stand, and what is wrong in that: nothing may stand still in silence (I11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from socket import gethostname

from webhooks import parts
from webhooks.celery import broker
from webhooks.celery.app import DELIVERIES, SLOW, SWEEP, app
from webhooks.health.asking import Answers, Fault, Questions
from webhooks.health.workers import Worker, look_at_workers
from webhooks.ledger.counting import Overdue
from webhooks.ledger.leases import Done
from webhooks.process.spans import in_words
from webhooks.settings import get_settings
from webhooks.sweep import Sighting

FRESH = timedelta(seconds=30)  # since the last sweep was done to the end
OVERDUE = timedelta(minutes=1)
_SOON = timedelta(seconds=5)  # for what costs the ledger next to nothing
QUIET = timedelta(minutes=1)  # for which a worker takes nothing from a queue in which something waits

QUEUES = (DELIVERIES, SLOW, SWEEP)
_NOT_ALWAYS = frozenset({SLOW})  # it is empty while nobody is slow: then nobody need be there for it


def of_system() -> dict[str, Questions]:
    """Return what is asked of each part to know whether the whole system goes on; all of it is cheap."""
    return {
        "ledger": {"sweep": last_sweep},
        "ledger, writing": {"ledger takes writes": _takes_writes},
        "gate": {"gate takes writes": gate_takes_writes},
        "broker": of_workers(),
    }


def of_workers(*names: str) -> Questions:
    """Return what is asked of the broker and these workers, or all; the order counts, see `_is_deaf`."""
    looks = {name: partial(parts.lookout().look, name) for name in QUEUES}
    return {
        **{f"queue {name}": look for name, look in looks.items()},
        "workers": partial(look_at_workers, names),
        **{f"then {name}": look for name, look in looks.items()},
    }


def of_beat() -> Questions:
    """Return what is asked of the broker to know whether beat lives on this host."""
    return {"beat": partial(broker.has_beat, app, gethostname())}


def judge_system(answers: Answers) -> Iterator[Fault]:
    """Name what stands still, and every part that did not answer."""
    yield from unanswered(answers)
    if isinstance(done := answers.get("sweep"), Done):
        yield from _judge_sweep(done)
    if isinstance(workers := answers.get("workers"), Mapping):
        yield from _judge_queues(answers, workers)
        for name, worker in workers.items():
            yield from _judge_deaf(answers, name, worker)


def unanswered(answers: Answers) -> Iterator[Fault]:
    """Name each part that could not be asked, once for each reason."""
    yield from dict.fromkeys(answer for answer in answers.values() if isinstance(answer, Fault))


def judge_worker(answers: Answers, name: str) -> Iterator[Fault]:
    """Name what keeps one worker from its work."""
    yield from unanswered(answers)
    if not isinstance(workers := answers["workers"], Mapping):
        return
    worker: Worker | None = workers.get(name)
    if worker is None:
        yield Fault(f"worker {name}", "it does not answer")
        return
    for queue in worker.cancelled:
        undo = f"celery -A webhooks control add_consumer {queue}"
        yield Fault(f"worker {name}", f"it takes nothing from the queue {queue} any more; to undo that: {undo}")
    yield from _judge_deaf(answers, name, worker)


def judge_beat(answers: Answers) -> Iterator[Fault]:
    """Name what keeps beat from its work."""
    yield from unanswered(answers)
    if answers["beat"] is False:
        yield Fault("beat", f"none has sent a sweep from {gethostname()} for {in_words(broker.BELIEVED)}")


def judge_overdue(answers: Answers) -> Iterator[Fault]:
    """Name the delivery that is longest overdue, when that is too long."""
    if isinstance(overdue := answers["overdue"], Overdue) and overdue.span > OVERDUE:
        yield Fault("deliveries", f"{overdue.delivery_id} is overdue by {in_words(overdue.span)}")


def _judge_sweep(done: Done) -> Iterator[Fault]:
    limit = max(FRESH, 5 * get_settings().sweep_interval)
    why = "is beat running, and a worker for the queue sweep?"
    if done.ago is None:
        yield Fault("sweep", f"none has ever been done: {why}")
    elif abs(done.ago) > limit:  # a time ahead was written before the ledger's clock was set back
        yield Fault("sweep", f"none has been done to the end for {in_words(abs(done.ago))}: {why}")


def _judge_queues(answers: Answers, workers: Mapping[str, Worker]) -> Iterator[Fault]:
    taken = {queue for worker in workers.values() for queue in worker.queues}
    if not all(worker.says for worker in workers.values()):
        return
    for name in QUEUES:
        queue = answers[f"then {name}"]
        if name not in taken and isinstance(queue, Sighting) and (queue.depth or name not in _NOT_ALWAYS):
            yield Fault(f"queue {name}", f"no worker takes from it, and {queue.depth} messages wait")


def _judge_deaf(answers: Answers, name: str, worker: Worker) -> Iterator[Fault]:
    for queue in QUEUES:
        before, after = answers[f"queue {queue}"], answers[f"then {queue}"]
        quiet = worker.quiet.get(queue, timedelta())
        if quiet > QUIET and isinstance(before, Sighting) and isinstance(after, Sighting) and _is_stuck(before, after):
            yield Fault(
                f"worker {name}",
                f"it has taken nothing from the queue {queue} for {in_words(quiet)}, and {after.depth} messages wait",
            )


def _is_stuck(before: Sighting, after: Sighting) -> bool:
    """Whether the same message is still the next: where somebody is idle, it is taken before the workers answer."""
    return before.next is not None and before.next == after.next


def _takes_writes() -> bool:
    parts.pulse().check_write()
    return True


def last_sweep() -> Done:
    """Return when a sweep was last done; a ledger that cannot say so soon is away, and need not be asked for more."""
    with parts.database().within(_SOON):
        return parts.pulse().last_done()


def gate_takes_writes() -> bool:
    """Ask the gate's Redis to write something."""
    parts.gate().check_write()
    return True
