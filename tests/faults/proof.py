"""The proof that the drill can fail: each sabotage with the faults that show it must be found out, by the right check.

    make sabotage                       # all of them, a minute and a half each
    make sabotage ONLY=acks-early

The exit status is 0 when each drill ended with 1 and named the invariant that its sabotage breaks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass

from tests.faults.sabotage import SABOTAGES


@dataclass(frozen=True, slots=True)
class Proof:
    """The faults under which a sabotage shows, and how the line of the check begins that sees it."""

    faults: str
    check: str


PROOFS = {
    "the-lost-are-ignored": Proof("queue_purged,redis_flushed", "I1"),
    "turns-are-not-compared": Proof("messages_doubled", "I3"),
    "acks-early": Proof("worker_killed,all_workers_killed", "Late acknowledgement"),
    "answers-are-forgotten": Proof("postgres_stopped,sessions_read_only", "I4"),
    "late-results-win": Proof("worker_frozen", "I8"),
    "the-queued-are-republished": Proof("workers_paused", "I7"),
    "the-dead-are-believed": Proof("worker_killed", "I1"),
    "refusals-are-swallowed": Proof("postgres_stopped", "I1"),
    "success-is-assumed": Proof("beat_killed", "I1"),
    "others-wait-behind": Proof("beat_killed", "I6"),
    "places-are-kept": Proof("acknowledgements_fail", "I11"),
    "sessions-are-kept": Proof("sessions_read_only", "I1"),
    "faults-are-waited-out": Proof("row_deleted", "I11"),
    "one-secret-signs-for-all": Proof("beat_killed", "I2"),
    "own-headers-are-shared": Proof("beat_killed", "I2"),
    "filters-are-ignored": Proof("beat_killed", "Routing"),
    "breakers-are-of-merchants": Proof("beat_killed", "I6"),
    "lanes-are-all-alike": Proof("beat_killed", "Lanes"),
    "rates-are-forgotten": Proof("beat_killed", "Rates"),
    "the-removed-are-remembered": Proof("beat_killed", "Removal"),
    "claims-are-kept": Proof("beat_killed", "Claims"),
}
_MINUTES = "1"
_SEED = "4"


def main() -> int:
    """Play the sabotaged drills; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.proof", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=sorted(PROOFS), help="this sabotage alone")
    only = parser.parse_args().only
    unproved = [f"{name} has no proof" for name in SABOTAGES.keys() - PROOFS.keys()]
    unproved += filter(None, (_play(name, PROOFS[name]) for name in ([only] if only else PROOFS)))
    for wrong in unproved:
        print(wrong)  # noqa: T201
    return 1 if unproved else 0


def _play(name: str, proof: Proof) -> str | None:
    """Play one drill, and say what is wrong with how it ended, if anything."""
    print(f"{name}: {SABOTAGES[name].__doc__}", flush=True)  # noqa: T201
    options = ["--minutes", _MINUTES, "--seed", _SEED, "--only", proof.faults, "--sabotage", name]
    command = [sys.executable, "-m", "tests.faults.drill", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    print(*(failed or ["nothing was found"]), sep="\n", flush=True)  # noqa: T201
    if done.returncode != 1 or not any(line.startswith(f"FAIL {proof.check}") for line in failed):
        return f"{name} was not found out by {proof.check}: exit {done.returncode}\n{done.stderr[-2000:]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
