"""The demo, as a person sees it: `make demo-judged`, and no part of the tests, which try each piece of it quicker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from webhooks.demo.stage import wait_until

ROOT = Path(__file__).parent.parent


def test_the_demo_keeps_running_until_it_is_told_to_end(tmp_path: Path) -> None:
    """`webhooks demo --keep` judges every delivery, names what to try, and on Ctrl-C leaves nothing behind."""
    log = tmp_path / "demo.log"
    folder = tempfile.mkdtemp(prefix="d-")  # short: PostgreSQL's socket is a file in it, of at most 107 characters
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "webhooks", "demo", "--keep"],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": folder},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - one thread
        )
    try:
        wait_until(lambda: b"Ctrl-C" in log.read_bytes() or demo.poll() is not None, "the demo is over", timeout=90)
        text = log.read_text(encoding="utf-8")
        assert "accepted 36 events, which go 38 ways" in text
        assert "all 38 deliveries went as the rules demand" in text
        assert "evt-1001~ep_books" in text
        assert "http://127.0.0.1:" in text
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
    finally:
        demo.kill()
        demo.wait()
    assert list(Path(folder).glob("webhooks*")) == []
    shutil.rmtree(folder)
