"""Chromium, driven through a pipe by its own protocol: no driver and no library in between.

Debian's package is `chromium`.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

PATIENCE_S = 30.0
# What it reads is its descriptor 3, and what it writes 4, whatever these were.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
for number, end in enumerate(ends, 3):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Return where Chromium is, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab of a headless Chromium; `requested` are the addresses of everything that it has asked for."""

    def __init__(self, program: str, folder: Path) -> None:
        theirs, self._to = os.pipe()
        self._from, ours = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-extensions"]
        options += ["--no-proxy-server", f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]
        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, str(theirs), str(ours), program, *options],
                pass_fds=(theirs, ours),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(theirs)
        os.close(ours)
        self._numbers = itertools.count(1)
        self._read = b""
        self._session: str | None = None
        self.requested: list[str] = []
        self.complaints: list[str] = []

    def open_tab(self) -> None:
        """Begin to speak with a tab."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        """End it, with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == number:
                assert "error" not in told, told["error"]
                return told["result"]
            self._hear(told)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        said = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Return an expression's value once it is true."""
        ends_s = time.monotonic() + PATIENCE_S
        while not (value := self._try(expression)):
            assert time.monotonic() < ends_s, f"never: {expression}\n{self._try('document.body.innerText')}"
            self._drain(0.02)
        return value

    def open(self, url: str) -> None:
        """Open a page, and return once it is complete."""
        self.evaluate("window.wasHere = true")
        self.ask("Page.navigate", url=url)
        self.settle()

    def settle(self) -> None:
        """Return once another page than the one before is complete."""
        self.wait_for("!window.wasHere && document.readyState === 'complete'")

    def fill(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.ask("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on what leads to another page, and return once that is complete."""
        self.evaluate("window.wasHere = true")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle()

    def text(self) -> str:
        """Return what a person reads."""
        return str(self.evaluate("document.body.innerText"))

    def has_asked_for(self, url: str) -> bool:
        """Whether it has; can be asked also while it waits for a page."""
        self._drain(0.02)
        return url in self.requested

    def shoot(self, path: Path) -> None:
        """Take a picture of the whole page."""
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _try(self, expression: str) -> Any:
        """Evaluate, where the page may be gone in the middle of it."""
        try:
            return self.evaluate(expression)
        except AssertionError:
            return None

    def _hear(self, told: Any) -> None:
        match told.get("method"), told.get("params"):
            case "Network.requestWillBeSent", {"request": {"url": str(url)}}:
                self.requested.append(url)
            case "Log.entryAdded", {"entry": {"level": "error", "text": str(text)}}:
                self.complaints.append(text)
            case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                self.complaints.append(str(details))
            case _:
                pass

    def _drain(self, seconds: float) -> None:
        while select.select([self._from], [], [], seconds)[0]:
            self._hear(self._next())

    def _next(self) -> Any:
        ends_s = time.monotonic() + PATIENCE_S
        while b"\0" not in self._read:
            ready = select.select([self._from], [], [], max(ends_s - time.monotonic(), 0))[0]
            assert ready, "the browser says nothing"
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser has ended"
            self._read += piece
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def browsing(program: str, folder: Path) -> Iterator[Browser]:
    """Have a browser for as long as the block lasts."""
    browser = Browser(program, folder)
    try:
        browser.open_tab()
        yield browser
    finally:
        browser.close()
