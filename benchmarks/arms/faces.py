"""The commands as processes, and the pages and the API over HTTP, on the ledger that is there."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from signal import SIGTERM

import requests

from benchmarks.bench import Bench
from benchmarks.crowd import RARE_TYPE
from benchmarks.figures import Row
from webhooks.demo.stage import Program
from webhooks.process import accounts

_ROUNDS = 5
_PASSWORD, _TOKEN = "a password of the bench", "whd_token of the bench"
_USER = f"bench:look:{accounts.hash_password(_PASSWORD)}:{accounts.hash_token(_TOKEN)}"
_LARGE, _NAMED = "crowd-1", "ep_crowd7"
_SOME = "crowd-evt-50000"  # to its merchant's default endpoint

_JUDGES = ("status", "health")  # they exit with 1: no sweep runs here
_COMMANDS = (
    "status",
    "status --json",
    "health",
    "delivery list",
    f"delivery list --merchant {_LARGE}",
    f"delivery list --endpoint {_NAMED}",
    "delivery list --state delivered",
    "delivery list --state failed --money",
    "delivery list --held-for breaker",
    "delivery list --reason expired",
    f"delivery list --type {RARE_TYPE}",
    "delivery list --answer 503",
    f"delivery list --merchant {_LARGE} --answer 503",
    "delivery list --since 1h",
    "delivery find pay_50000",
    "delivery find order-1",
    f"delivery show {_SOME}",
    f"event show {_SOME}",
    f"merchant show {_LARGE}",
    "merchant list",
    f"endpoint show {_LARGE}",
    "endpoint list",
    "failed",
    f"failed list --merchant {_LARGE}",
    "breaker list",
    "notice list",
    "audit",
)

_PAGES = (
    "/",
    "/deliveries",
    f"/deliveries?merchant_id={_LARGE}",
    f"/deliveries?endpoint_id={_NAMED}",
    "/deliveries?state=delivered",
    "/deliveries?state=failed&money=true",
    "/deliveries?held_for=breaker",
    "/deliveries?reason=expired",
    f"/deliveries?type={RARE_TYPE}",
    "/deliveries?answer=503",
    f"/deliveries?merchant_id={_LARGE}&answer=503",
    "/deliveries?since=1h",
    "/find?value=pay_50000",
    "/find?value=order-1",
    f"/delivery?id={_SOME}",
    f"/event?id={_SOME}",
    "/merchants",
    f"/merchant?id={_LARGE}",
    f"/endpoint?id={_LARGE}",
    "/failed",
    f"/failed?merchant_id={_LARGE}",
    "/audit",
)

_ASKED = (
    "/status",
    "/pace",
    "/deliveries?limit=200",
    "/desk",
    "/failures?limit=200",
    "/endpoints",
    "/breakers",
)


def faces(bench: Bench) -> list[Row]:
    """Time what people and programs ask, beside a worker that has nothing to do but answer."""
    with bench.stage(SIGTERM, WEBHOOKS_DASHBOARD_USERS=_USER) as stage:
        stage.worker("idle", "--queues", "nobody's")
        dashboard = stage.run("dashboard", "-m", "webhooks", "dashboard", "--port", "0", ready="dashboard: http://")
        with _visitor(dashboard) as (url, visitor):
            asked = [f"/api{path}" for path in _ASKED]
            return [*map(_command(bench), _COMMANDS), *(_page(visitor, url, path) for path in [*_PAGES, *asked])]


def _command(bench: Bench) -> Callable[[str], Row]:
    environment = bench.of_others()

    def timed(words: str) -> Row:
        took, cpu = [], []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            command = [sys.executable, "-m", "webhooks", *words.split()]
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            took.append(1000 * (time.perf_counter() - began))
            cpu.append(1000 * (used.ru_utime + used.ru_stime))
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode and not words.startswith(_JUDGES):
                raise RuntimeError(f"webhooks {words}: exit status {process.returncode}")
        return Row("reads", f"webhooks {words}", {**_figures(took), "CPU ms": statistics.median(cpu)})

    return timed


def _page(visitor: requests.Session, url: str, path: str) -> Row:
    took = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        answer = visitor.get(url + path, timeout=30, allow_redirects=False)
        if answer.status_code != 200:
            raise RuntimeError(f"GET {path}: {answer.status_code}, {answer.text[:300]}")
        took.append(1000 * (time.perf_counter() - began))
    return Row("reads", f"GET {path}", _figures(took))


def _figures(took: Sequence[float]) -> dict[str, float]:
    return {"p50 ms": statistics.median(took), "max ms": max(took)}


@contextmanager
def _visitor(dashboard: Program) -> Iterator[tuple[str, requests.Session]]:
    """Give the dashboard's address and somebody who has logged in, by the page's form and with a token."""
    (url,) = re.findall(r"http://\S+", dashboard.log.read_text())
    with requests.Session() as visitor:
        visitor.trust_env = False
        (token,) = re.findall(r'name="form_token" value="([^"]+)"', visitor.get(f"{url}/login", timeout=30).text)
        form = {"name": "bench", "password": _PASSWORD, "form_token": token}
        visitor.post(f"{url}/login", form, timeout=30).raise_for_status()
        visitor.headers["Authorization"] = f"Bearer {_TOKEN}"
        yield url, visitor
