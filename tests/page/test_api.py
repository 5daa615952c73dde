"""The JSON API is what its document says: each operation called, each answer held against its schema."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
import requests
from openapi_spec_validator import validate

from tests import courier
from tests.page.client import Client
from tests.page.conftest import TOKENS, Site
from tests.system import System
from webhooks import parts
from webhooks.model import Changes
from webhooks.page.table import OPERATIONS

WHY = {"why": "the merchant has asked for it"}
FAILED = {"delivery_ids": ["evt-bad"], **WHY}

# One call of each operation that goes well, in an order in which each finds what it needs.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("show_status", {}),
    ("show_pace", {}),
    ("list_deliveries", {"state": "failed", "since": "1h", "limit": 10}),
    ("show_delivery", {"delivery_id": "evt-again"}),
    ("find_deliveries", {"value": "evt-good"}),
    ("show_event", {"event_id": "evt-good"}),
    ("list_endpoints", {}),
    ("show_endpoint", {"endpoint_id": "strict"}),
    ("show_merchant", {"merchant_id": "strict"}),
    ("list_breakers", {}),
    ("show_desk", {}),
    ("list_failures", {"reason": "rejected"}),
    ("note_failures", {"delivery_ids": ["evt-bad"], "text": "they were told"}),
    ("dismiss_failures", FAILED),
    ("reopen_failures", FAILED),
    ("replay_failures", FAILED),
    ("cancel_deliveries", FAILED),
    ("replay_deliveries", {**FAILED, "cancelled": True}),
    ("replay_event", {"event_id": "evt-good", **WHY}),
    ("replay_group", {"merchant_id": "strict", "reason": "rejected", **WHY}),
    ("dismiss_group", {"merchant_id": "strict", "reason": "rejected", **WHY}),
    ("reset_breaker", {"endpoint_id": "strict", **WHY}),
    ("ping_endpoint", {"endpoint_id": "acme", **WHY}),
    ("pause_endpoint", {"endpoint_id": "strict", **WHY}),
    ("resume_endpoint", {"endpoint_id": "strict", **WHY}),
    ("pause_merchant", {"merchant_id": "strict", **WHY}),
    ("resume_merchant", {"merchant_id": "strict", **WHY}),
    ("list_audit", {}),
    ("list_refused", {}),
]

STRANGE = ["\0", "%00", "a/b", "☃", "x" * 3000, "' OR 1=1 --", "-1", "99999999999999999999999", "null", "{}"]


@pytest.fixture
def client(site: Site) -> Client:
    """A client that was made from the document."""
    return Client(site)


def test_the_document_is_valid_and_names_every_operation(client: Client) -> None:
    """It is OpenAPI as the specification's own schema wants it, and each operation in it says what it does."""
    validate(client.document)
    assert client.operations.keys() == {each.name for each in OPERATIONS}
    assert all(operation["summary"].endswith(".") for _, _, operation in client.operations.values())


def test_every_operation_answers_what_its_schema_says(client: Client, story: System) -> None:
    """Each goes well once; each act of them stands in the audit with the token's operator and the reason."""
    assert {name for name, _ in CALLS} == client.operations.keys()
    answers = {name: client.call(name, **given) for name, given in CALLS}
    assert answers["find_deliveries"][0]["delivery"]["id"] == "evt-good"
    assert answers["show_delivery"]["attempts"][0]["status"] == 503
    assert answers["list_failures"]["items"][0]["id"] == "evt-bad"
    assert answers["replay_deliveries"] == [{"delivery_id": "evt-bad", "refused": None, "note": None}]
    assert (answers["ping_endpoint"]["fine"], answers["ping_endpoint"]["status"]) == (True, 200)
    told = [(line["who"], line["why"]) for line in answers["list_audit"]["items"]]
    assert set(told) == {("anna", WHY["why"]), ("anna", None)}  # a note says itself what it is for
    assert answers["list_audit"]["items"][-1]["what"] == "note on evt-bad"


def test_moments_have_a_zone_and_durations_are_seconds(client: Client, story: System) -> None:
    """As in what the command prints, so that one program reads both."""
    shown = client.call("show_delivery", delivery_id="evt-good")
    assert datetime.fromisoformat(shown["delivery"]["accepted_at"]).tzinfo
    assert client.call("show_pace")["last_minute"]["lasts"] == 60


def test_a_list_goes_on_with_its_cursor(client: Client, story: System) -> None:
    """Page by page each delivery comes once, whichever list it is."""
    seen: list[str] = []
    page = client.call("list_deliveries", limit=2)
    while True:
        seen += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        page = client.call("list_deliveries", limit=2, after=page["next"])
    assert sorted(seen) == ["evt-again", "evt-bad", "evt-good", "evt-held"]
    first = client.call("list_endpoints", limit=1)
    second = client.call("list_endpoints", limit=1, after=first["next"])
    assert [first["items"][0]["id"], second["items"][0]["id"], second["next"]] == ["acme", "strict", None]


def test_who_may_look_reads_everything_and_does_nothing(client: Client, story: System) -> None:
    """Each read answers a token of the role look, each act refuses it."""
    for name, given in CALLS:
        expected = 200 if client.operations[name][0] == "GET" else 403
        client.call(name, TOKENS["lena"], expected, **given)
    assert parts.audit().latest(1).items == []


@pytest.mark.parametrize(
    ("method", "path", "given", "complaint"),
    [
        ("GET", "/deliveries?stat=failed", None, "'stat' is not known here"),
        ("GET", "/deliveries?limit=1&limit=2", None, "'limit' is given twice"),
        ("GET", "/deliveries?state=lost", None, "state: Input should be 'pending', 'held', 'delivered' or 'failed'"),
        ("GET", "/deliveries?limit=100000", None, "limit: Input should be less than or equal to 200"),
        ("GET", "/deliveries?since=yesterday", None, "since: 'yesterday' is not a moment such as 2026-01-31"),
        ("GET", "/deliveries?since=30", None, "since: '30' is not a moment"),  # of what? a second of 1970 is not meant
        ("GET", "/failures?failed_before=-5", None, "failed_before: '-5' is not a moment"),
        ("GET", f"/deliveries?after={'x' * 1001}", None, "after: String should have at most 1000 characters"),
        ("GET", f"/deliveries/{'x' * 1001}", None, "delivery_id: no name is written like that"),
        ("GET", "/deliveries?type=%00", None, "type: it has a NUL in it"),
        ("GET", "/find", None, "value: Field required"),
        ("POST", "/deliveries/cancel", None, "the body is not a JSON object"),
        ("POST", "/deliveries/cancel", ["evt-bad"], "the body is not a JSON object"),
        ("POST", "/deliveries/cancel", {"delivery_ids": ["evt-bad"]}, "why: Field required"),
        ("POST", "/deliveries/cancel", {"delivery_ids": [], **WHY}, "delivery_ids: List should have at least 1 item"),
        ("POST", "/deliveries/cancel", {"delivery_ids": ["\ud800"], **WHY}, "delivery_ids.0: "),
        ("POST", "/endpoints/acme/pause", {"why": ""}, "why: String should have at least 1 character"),
        ("POST", "/endpoints/acme/pause", {"why": " \t"}, "why: String should have at least 1 character"),
        ("POST", "/endpoints/acme/pause", {"why": "a\nb"}, "why: it is more than a line"),
        ("POST", "/endpoints/acme/pause", {"why": "x\u202e"}, "why: it is more than a line, or has characters in it"),
        ("POST", "/endpoints/acme/pause", {"why": "x", "until": "noon"}, "'until' is not known here"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(
    site: Site, method: str, path: str, given: object, complaint: str
) -> None:
    """It is 422, in JSON, and nothing was done."""
    answer = site.api(method, path, json=given)
    assert (answer.status_code, list(answer.json())) == (422, ["error"])
    assert answer.json()["error"].startswith(complaint)
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("body", ["[" * 100_000, '{"why":' * 30_000], ids=["lists", "objects"])
def test_a_body_of_brackets_within_brackets_is_a_mistake_as_well(site: Site, body: str) -> None:
    """Whatever reads it gives up at some depth; that is no fault of ours, and fills no log."""
    headers = {"Authorization": f"Bearer {TOKENS['anna']}", "Content-Type": "application/json"}
    answer = requests.post(f"{site.url}/api/deliveries/cancel", data=body, headers=headers, timeout=30)
    assert (answer.status_code, list(answer.json())) == (422, ["error"])
    assert answer.json()["error"].startswith("the body is not a JSON object")


def test_a_reason_is_written_without_what_surrounds_it(client: Client, story: System) -> None:
    """The audit has the words alone."""
    client.call("pause_endpoint", endpoint_id="acme", why="  they asked ")
    assert parts.audit().latest(1).items[0].why == "they asked"


def test_what_is_not_there_is_404_and_what_cannot_be_is_409(site: Site, story: System) -> None:
    """Both in one line, which is the command's own; a path of nothing says where the document is."""
    found = {
        path: site.api("GET", path).status_code
        for path in ("/deliveries/nope", "/events/nope", "/endpoints/nope", "/merchants/nope", "/deliveries?after=nope")
    }
    assert set(found.values()) == {404}
    assert site.api("GET", "/nowhere").json()["error"].endswith("all are in /api/openapi.json")
    assert site.api("PUT", "/deliveries").status_code == 405
    refused = site.api("POST", "/endpoints/nope/pause", json=WHY)
    assert (refused.status_code, refused.json()["error"].partition(";")[0]) == (409, "no merchant nope")


def test_nothing_that_is_sent_is_a_fault_of_ours(client: Client, site: Site, story: System) -> None:
    """Whatever stands in a path, a query or a body, the answer is one that the document names, and never a 500."""
    for name, (method, path, operation) in client.operations.items():
        for strange in STRANGE if name != "show_status" else []:
            filled = path
            for each in operation["parameters"]:
                if each["in"] == "path":
                    filled = filled.replace(f"{{{each['name']}}}", strange.replace("%", "%25").replace("?", "%3F"))
            query = {each["name"]: strange for each in operation["parameters"] if each["in"] == "query"}
            body = {"why": strange, "text": strange, "delivery_ids": [strange], "merchant_id": strange}
            answer = site.api(method, filled, params=query, json=body)
            assert answer.status_code in {200, 404, 405, 409, 422}, (name, strange, answer.text)
            assert answer.headers["Content-Type"] == "application/json"


def test_a_merchants_id_may_have_a_slash(client: Client, story: System) -> None:
    """Whatever a producer calls a merchant, the path of its name finds it."""
    parts.endpoints().set("shop/eu 1?", Changes(url="https://shop.example/hooks", secret="a secret of the tests"))
    assert client.call("show_merchant", merchant_id="shop/eu 1?")["endpoints"][0]["id"] == "shop/eu 1?"
    paused = client.call("pause_endpoint", endpoint_id="shop/eu 1?", why="so be it")
    assert (paused["id"], bool(paused["paused_at"])) == ("shop/eu 1?", True)


def test_neither_secrets_nor_bodies_nor_queries_come_out(client: Client, story: System) -> None:
    """An address is told without its query, which may be a key; of headers there are names."""
    url = "https://keeper:canary@shop.example/hooks?key=canary"
    parts.endpoints().set("shop", Changes(url=url, secret="canary of the tests", headers={"X-Key": "canary"}))
    courier.accept({"id": "evt-body", "type": "t", "merchant_id": "shop", "card": "canary"})
    ids = {"merchant_id": "shop", "endpoint_id": "shop", "event_id": "evt-body", "delivery_id": "evt-body"}
    for name, example in CALLS:
        given = {key: ids.get(key, value) for key, value in example.items()}
        method, path, _ = client.operations[name]
        for key, value in given.items():
            path = path.replace(f"{{{key}}}", str(value))
        answer = client._site.api(method, path, json=given if method == "POST" else None)
        assert "canary" not in answer.text, name
    shown = client.call("show_endpoint", endpoint_id="shop")["endpoint"]
    assert (shown["url"], shown["headers"]) == ("https://shop.example/hooks?…", ["X-Key"])
