"""The example receivers as running programs, and requests to them that are not ours."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from webhooks.demo.stage import wait_until
from webhooks.signing import sign

EXAMPLES = Path(__file__).parents[2] / "examples/receivers"
EXPRESS = "express@5.3.0"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


class Receiver:
    """A receiver that runs on the loopback; what it prints is its log."""

    def __init__(self, command: list[str], folder: Path, secrets: Mapping[str, str]) -> None:
        self.log = folder / "receiver.log"
        environment = {**os.environ, **secrets, "PORT": "0", "PYTHONUNBUFFERED": "1"}
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Self:
        try:
            wait_until(lambda: _ADDRESS.search(self.says) or self._process.poll() is not None, "the receiver listens")
            assert self._process.poll() is None, self.says
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def says(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")

    @property
    def url(self) -> str:
        """The address that takes webhooks."""
        found = _ADDRESS.search(self.says)
        assert found
        return f"{found[0]}/webhooks"

    @property
    def handled(self) -> list[str]:
        """The payments that were handled, in their order."""
        return re.findall(r"^payment (\S+) is paid$", self.says, re.MULTILINE)

    def post(self, headers: Mapping[str, str | bytes], body: bytes) -> int:
        """POST something and return the status of the answer."""
        given = {name: value for name, value in headers.items()}  # noqa: C416 - bytes are sent as they are
        request = urllib.request.Request(self.url, body, given, method="POST")  # type: ignore[arg-type]
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


def flask(folder: Path) -> list[str]:
    """Return the command that runs the Flask receiver."""
    return [sys.executable, str(EXAMPLES / "flask_app.py")]


def express(folder: Path) -> list[str]:
    """Return the command that runs the Express receiver in a folder that has Express; skip where there is none."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("the Express receiver needs node and npm")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes share the folder
        if not (folder / "installed").exists():
            _install(folder)
            (folder / "installed").touch()
    shutil.copy(EXAMPLES / "express_app.js", folder)
    return ["node", str(folder / "express_app.js")]


def _install(folder: Path) -> None:
    (folder / "package.json").write_text("{}")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0", EXPRESS]
    try:
        installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install {EXPRESS} within a minute")
    if installed.returncode:
        reason = next((line for line in installed.stderr.splitlines() if "code" in line), "npm failed")
        pytest.skip(f"npm could not install {EXPRESS}: {reason}")


def signed(secret: str, body: bytes, *, age: int = 0) -> dict[str, str | bytes]:
    """Return the headers of a webhook that was signed so many seconds ago."""
    stamp = str(int(time.time()) - age)
    return {
        "Content-Type": "application/json",
        "X-Webhook-Id": json.loads(body)["id"],
        "X-Webhook-Timestamp": stamp,
        "X-Webhook-Signature": sign(secret, stamp, body),
    }
