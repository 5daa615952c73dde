"""The drill itself, short: a few faults in a fixed order, and all invariants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_FAULTS = "worker_killed,redis_flushed,postgres_restarted,broker_connections_cut,queue_purged,messages_doubled"


def test_a_short_drill_passes() -> None:
    """Six kinds of fault in half a minute: nothing is lost, doubled without a reason, or stuck."""
    command = ["-m", "tests.faults.drill", "--minutes", "0.8", "--seed", "4", "--only", _FAULTS]
    done = subprocess.run([sys.executable, *command], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
