"""A Prometheus of one's own, with the deployment's own rules, that asks and judges five times a second.

It is the Debian package's `prometheus`; where that is missing, `is_installed()` says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from webhooks.demo.embedded import free_port
from webhooks.demo.stage import wait_until

MISSING = "prometheus is not installed (Debian: apt-get install prometheus)"
DEPLOY = Path(__file__).parent.parent / "deploy"

_EVERY = "200ms"


def is_installed() -> bool:
    """Whether there is a Prometheus on this machine."""
    return shutil.which("prometheus") is not None


def rules() -> list[dict[str, Any]]:
    """Return the alert rules that a deployment gets."""
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    """Return the dashboard that a deployment gets."""
    found: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    return found


class Prometheus:
    """Scrapes these ports of the loopback, by the deployment's file; what its rules wait for lasts no time here."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="webhooks-prometheus-"))

    def _configure(self) -> None:
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": _EVERY, "scrape_timeout": _EVERY, "evaluation_interval": _EVERY}
        for job in config["scrape_configs"]:
            job["scrape_interval"] = _EVERY
            job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in self._ports]}]
        at_once = [{**rule, "for": "0s"} for rule in rules()]
        written = {"prometheus.yml": config, "alerts.yml": {"groups": [{"name": "webhooks", "rules": at_once}]}}
        for name, content in written.items():
            (self.folder / name).write_text(yaml.safe_dump(content))

    def start(self) -> Self:
        """Start, and return once it answers."""
        self._configure()
        options = {
            "config.file": self.folder / "prometheus.yml",
            "storage.tsdb.path": self.folder / "data",
            "web.listen-address": f"127.0.0.1:{self._port}",
            "log.level": "error",
        }
        with (self.folder / "log").open("wb") as log:
            command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._is_ready, f"Prometheus is ready; its log is {self.folder / 'log'}")
        return self

    def _is_ready(self) -> bool:
        assert self._process
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            self._get("/-/ready")
        except OSError:
            return False
        return True

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression comes to now, each with its labels under `metric`."""
        answer = json.loads(self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def has_judged(self) -> bool:
        """Whether each rule has been judged, and could be."""
        (group,) = json.loads(self._get("/api/v1/rules"))["data"]["groups"]
        return all(rule["health"] == "ok" for rule in group["rules"])

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)
