"""What a deployment is given for Prometheus and Grafana: files that fit the code and the documents."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests import prometheus
from tests.prometheus import DEPLOY
from webhooks.health import judging
from webhooks.settings import Settings

OPERATIONS = (DEPLOY.parent / "docs/operations.md").read_text(encoding="utf-8")
PARAGRAPHS = dict(re.findall(r"^- \*\*(Webhooks\w+)\*\*: (.*)$", OPERATIONS, re.MULTILINE))


def test_each_alert_has_its_paragraph_and_each_paragraph_its_alert() -> None:
    """It says what the alert means, where to look, and what to do."""
    assert list(PARAGRAPHS) == [rule["alert"] for rule in prometheus.rules()]
    for name, paragraph in PARAGRAPHS.items():
        meaning, look, act = re.split(r" \*(?:Look at|Do):\* ", paragraph)
        assert min(map(len, (meaning, look, act))) > 20, name


def test_each_alert_says_what_is_wrong_and_how_urgent_that_is() -> None:
    """In a line for whoever it wakes, or doesn't."""
    for rule in prometheus.rules():
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert not re.search(r"merchant|endpoint_id", rule["expr"])


@pytest.mark.parametrize(
    ("alert", "bound"),
    [
        ("WebhooksOverdue", judging.OVERDUE.total_seconds()),
        ("WebhooksSweepSilent", judging.FRESH.total_seconds()),
        ("WebhooksQueueDeep", 2 * Settings.model_construct().max_queued),
    ],
)
def test_an_alert_judges_as_status_does(alert: str, bound: float) -> None:
    """Where both look at the same, they go by the same number; a queue is deep at twice what the sweep puts there."""
    (rule,) = (rule for rule in prometheus.rules() if rule["alert"] == alert)
    assert rule["expr"].endswith(f" > {bound:g}")


def test_the_dashboards_panels_stand_beside_each_other() -> None:
    """Each has a name, lines with names, and a place of its own."""
    panels = prometheus.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels) > 10
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["expr"], panel["title"]
            assert target["legendFormat"], panel["title"]


def test_prometheus_asks_the_ports_that_the_guide_says() -> None:
    """All of the range, since a process takes whichever is free."""
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    (first, last) = map(int, re.findall(r"`WEBHOOKS_METRICS_PORT=(\d+)-(\d+)`", OPERATIONS)[0])
    asked = [target for each in job["static_configs"] for target in each["targets"]]
    assert asked == [f"127.0.0.1:{port}" for port in range(first, last + 1)]


@pytest.mark.skipif(not prometheus.is_installed(), reason=prometheus.MISSING)
def test_prometheus_own_tool_has_nothing_to_say() -> None:
    """About the rules, and about the file that names them."""
    command = ["promtool", "check", "config", "prometheus.yml"]
    done = subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(prometheus.rules())} rules found" in done.stdout
