"""`webhooks endpoint`: the several addresses of a merchant, added, changed, paused and looked at; nothing secret shows.

What removing does stands in test_removing.py, where an event goes in test_filters.py, two operators at once in
test_operators_at_once.py, and what workers make of it in tests/worker/test_endpoints.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from tests.command import done, refused, run
from tests.courier import accept_all, attempt
from tests.integration.test_breaker import pause
from tests.remains import texts_in
from tests.system import SECRET, System
from webhooks import parts
from webhooks.model import Changes, HeldFor
from webhooks.policy.breaker import BreakerState
from webhooks.policy.decisions import Delivered
from webhooks.settings import get_settings

URL = "https://acme.example/hook"
EVENT = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
CANARY = "canary-of-the-tests"


@pytest.fixture
def acme(system: System) -> System:
    """A merchant with a default endpoint and one more."""
    furnish()
    return system


def furnish() -> None:
    """Register a merchant with a default endpoint, and one more that has something of everything."""
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    more = Changes(
        url=f"{URL}/more",
        secret=SECRET,
        headers={"X-Key": "one"},
        types=("kyc.*",),
        lane=3,
        rate=0.5,
        note="the second",
    )
    parts.endpoints().add("acme", "ep_more", more)


def headers_of(system: System, endpoint_id: str) -> dict[str, str]:
    """Return an endpoint's own headers with their values, as the ledger keeps them for the workers."""
    (row,) = system.sql("SELECT headers FROM endpoints WHERE id = :id", id=endpoint_id)
    return {name: get_settings().cipher.decrypt(value).decode() for name, value in row.headers.items()}


def secret_of(system: System, endpoint_id: str) -> str:
    """Return an endpoint's secret."""
    (row,) = system.sql("SELECT secret FROM endpoints WHERE id = :id", id=endpoint_id)
    return get_settings().cipher.decrypt(bytes(row.secret)).decode()


def rows(system: System) -> Sequence[Any]:
    """Return all that is known of endpoints."""
    return system.sql("SELECT * FROM endpoints ORDER BY id")


def test_an_endpoint_is_added_with_everything_that_it_may_have(acme: System) -> None:
    """What was given is shown again, but for secret and values; the audit names fields and no content."""
    options = ["--id", "ep_x-1.a_b", "--url", f"{URL}/x", "--secret", CANARY, "--standard-headers", "--lane", "7"]
    options += ["--rate", "2.5"]
    options += ["--header", f"Authorization: Bearer {CANARY}", "--header", "X-Shop:main", "--note", "Zoë's"]
    options += ["--type", "kyc.status_changed", "--type", "payment.*", "--type", "payment.*", "--why", "they asked"]
    added = done("endpoint", "add", "acme", *options)
    assert {**added, "created_at": 0, "updated_at": 0} == {
        "id": "ep_x-1.a_b",
        "merchant_id": "acme",
        "url": f"{URL}/x",
        "has_secret": True,
        "previous_secret_until": None,
        "standard_headers": True,
        "headers": ["X-Shop", "Authorization"],
        "types": ["kyc.status_changed", "payment.*"],
        "lane": 7,
        "rate": 2.5,
        "note": "Zoë's",
        "paused_at": None,
        "created_at": 0,
        "updated_at": 0,
    }
    assert headers_of(acme, "ep_x-1.a_b") == {"Authorization": f"Bearer {CANARY}", "X-Shop": "main"}
    assert secret_of(acme, "ep_x-1.a_b") == CANARY
    (line,) = done("audit")
    what = "set address, secret, headers, own headers, types, lane, rate, note of ep_x-1.a_b, a new endpoint of acme"
    assert (line["what"], line["why"]) == (what, "they asked")


@pytest.mark.usefixtures("system")
def test_an_id_and_a_secret_are_made_where_none_is_given() -> None:
    """A merchant need not have a default endpoint; each id is another, and the secret is printed this once."""
    first, second = (done("endpoint", "add", "acme", "--url", URL, "--generate-secret") for _ in range(2))
    assert first["id"] != second["id"]
    assert first["id"].startswith("ep_")
    assert len(first["secret"]) >= 32
    assert parts.endpoints().find("acme") is None
    assert [each.id for each in parts.endpoints().of("acme")] == sorted([first["id"], second["id"]])
    assert "secret" not in done("endpoint", "show", first["id"])
    standard = done("endpoint", "add", "acme", "--url", URL, "--generate-secret", "--standard-headers")["secret"]
    assert standard.startswith("whsec_")


ADDING = [
    (["acme", "--id", "ep_more", "--url", URL, "--secret", "x"], "ep_more is an endpoint of acme already"),
    (["other", "--id", "ep_more", "--url", URL, "--secret", "x"], "ep_more is an endpoint of acme already"),
    (["acme", "--id", "ep_gone", "--url", URL, "--secret", "x"], "ep_gone was removed, and no other endpoint may have"),
    (["acme", "--id", "acme", "--url", URL, "--secret", "x"], "an endpoint's id is ep_ and up to 40 of"),
    (["acme", "--id", "ep_", "--url", URL, "--secret", "x"], "not 'ep_'"),
    (["acme", "--id", "ep_Capital", "--url", URL, "--secret", "x"], "an endpoint's id is ep_ and up to 40 of"),
    (["acme", "--id", "ep_" + "x" * 41, "--url", URL, "--secret", "x"], "an endpoint's id is ep_ and up to 40 of"),
    (["acme", "--id", "", "--url", URL, "--secret", "x"], "an endpoint's id is ep_ and up to 40 of"),
    (["ep_more", "--url", URL, "--secret", "x"], "merchant_id: looks like the id of an endpoint"),
    ([" acme", "--url", URL, "--secret", "x"], "merchant_id: begins or ends with white space"),
    (["acme", "--secret", "x"], "an endpoint needs an address; give --url"),
    (["acme", "--no-url", "--secret", "x"], "an endpoint needs an address; give --url"),
    (["acme", "--id", "ep_new", "--url", URL], "ep_new has no secret yet; add --secret or --generate-secret"),
    (["acme"], "nothing to set"),
    (["acme", "--url", "http://acme.example/", "--secret", "x"], "https"),
    (["acme", "--url", "https://127.0.0.1/", "--secret", "x"], "public"),
    (["acme", "--url", "https://[::ffff:10.0.0.1]/", "--secret", "x"], "public"),
    (["acme", "--url", f"https://user:{CANARY}@acme.example/", "--secret", "x"], "user name or password"),
    (["acme", "--url", "https://bücher.example/", "--secret", "x"], "xn--bcher-kva.example"),
    (["acme", "--url", URL, "--secret", "x", "--no-header", "X-Key"], "no header of a name that shall go"),
]


@pytest.mark.parametrize(("arguments", "why"), ADDING)
def test_what_cannot_be_added_is_refused(system: System, arguments: Sequence[str], why: str) -> None:
    """One line says why, without what may be secret, and nothing is changed or told to the audit."""
    system.set(allow_private_addresses="false")
    furnish()
    parts.endpoints().add("acme", "ep_gone", Changes(url=URL, secret=SECRET))
    parts.endpoints().remove("ep_gone")
    before = rows(system)
    line = refused("endpoint", "add", *arguments)
    assert why in line
    assert CANARY not in line
    assert rows(system) == before
    assert done("audit") == []


SETTING = [
    (["--url", f"{URL}/new"], {"url": f"{URL}/new"}),
    (["--no-url"], {"url": None, "has_secret": True}),
    (["--secret", "another"], {"has_secret": True}),
    (["--standard-headers"], {"standard_headers": True}),
    (["--no-standard-headers"], {"standard_headers": False}),
    (["--header", "X-Shop: main"], {"headers": ["X-Key", "X-Shop"]}),
    (["--no-header", "x_KEY"], {"headers": []}),
    (["--type", "a", "--type", "b.*"], {"types": ["a", "b.*"]}),
    (["--all-types"], {"types": None}),
    (["--lane", "1000"], {"lane": 1000}),
    (["--no-lane"], {"lane": None}),
    (["--rate", "0.01"], {"rate": 0.01}),
    (["--rate", "1000"], {"rate": 1000}),
    (["--no-rate"], {"rate": None}),
    (["--note", "n" * 500], {"note": "n" * 500}),
    (["--note", ""], {"note": None}),
]


@pytest.mark.parametrize(("options", "changed"), SETTING, ids=lambda value: " ".join(value)[:40])
def test_each_option_sets_what_it_says_and_nothing_else(
    acme: System, options: Sequence[str], changed: dict[str, object]
) -> None:
    """The endpoint is otherwise as it was, and so is the merchant's default one."""
    before, default = done("endpoint", "show", "ep_more"), done("endpoint", "show", "acme")
    after = done("endpoint", "set", "ep_more", *options)
    shown = done("endpoint", "show", "ep_more")
    looked = {name: shown.pop(name) for name in ("breaker", "held", "failed", "last_hour", "last_day", "last_answers")}
    assert (looked["held"], looked["failed"], looked["last_answers"]) == ({}, {}, [])
    assert after == shown == {**{name: before[name] for name in shown}, **changed, "updated_at": shown["updated_at"]}
    assert done("endpoint", "show", "acme") == default
    assert secret_of(acme, "ep_more") == ("another" if "another" in options else SECRET)


WRONG = [
    ([], "nothing to set"),
    (["--url", URL, "--no-url"], "--url and --no-url exclude each other"),
    (["--secret", "a", "--generate-secret"], "--secret and --generate-secret exclude each other"),
    (["--type", "a", "--all-types"], "--type and --all-types exclude each other"),
    (["--lane", "1", "--no-lane"], "--lane and --no-lane exclude each other"),
    (["--rate", "1", "--no-rate"], "--rate and --no-rate exclude each other"),
    (["--rate", "nan"], "a rate is 0.01 to 1000 attempts a second"),
    (["--header", "X-Key: a", "--no-header", "x-key"], "--header and --no-header of one name exclude each other"),
    (["--header", "X-New: a", "--header", "x_new: b"], "--header: one of them is given twice"),
    (["--secret", ""], "the secret is empty"),
    (["--secret", f"whsec_%{CANARY}"], "must go on in base64"),
    (["--url", "http://acme.example/"], "https"),
    (["--header", f"Cookie: {CANARY}"], "header Cookie: is not an endpoint's to set"),
    (["--header", f"x_webhook.id: {CANARY}"], "header x_webhook.id: is not an endpoint's to set"),
    (["--header", f"X {CANARY}: v"], "header: a name is made of letters, digits and hyphens"),
    (["--header", f": {CANARY}"], "header: a name is made of letters, digits and hyphens"),
    (["--header", "X-New:"], "header X-New: the value is empty"),
    (
        ["--header", f"X-New: {CANARY}\r\nEvil: 1"],
        "header X-New: the value has a character that is not printable ASCII",
    ),
    (["--header", f"X-New: {CANARY}é"], "header X-New: the value has a character that is not printable ASCII"),
    (["--header", "X-New: " + CANARY * 100], "header X-New: the value has more than 1024 characters"),
    ([f"--header=X-{each}: {CANARY}" for each in range(20)], "headers: at most 20, not 21"),
    (["--no-header", CANARY], "no header of a name that shall go; its own headers are: X-Key"),
    (["--no-header", ""], "no header of a name that shall go"),
    (["--type", ""], "type: must be a non-empty string"),
    (["--type", " a"], "type: begins or ends with white space"),
    (["--type", "payment*"], "type payment*: a star only stands for all types under a name"),
    ([f"--type=t{each}" for each in range(101)], "types: at most 100, not 101"),
    (["--note", "n" * 501], "a note has 1 to 500 printable characters"),
    (["--note", "two\nlines"], "a note has 1 to 500 printable characters"),
]


@pytest.mark.parametrize(("options", "why"), WRONG, ids=lambda value: (value if isinstance(value, str) else "")[:40])
@pytest.mark.parametrize("command", ["endpoint set ep_more", "merchant set acme"])
def test_mistakes_change_nothing(acme: System, command: str, options: Sequence[str], why: str) -> None:
    """One line, which shows neither a value nor what may be one; the audit has no line."""
    parts.endpoints().set("acme", Changes(headers={"X-Key": "one"}))
    before = rows(acme)
    line = refused(*command.split(), *options)
    assert why in line
    assert CANARY not in line
    assert rows(acme) == before
    assert done("audit") == []


UNREADABLE = [
    ["--header", CANARY],
    *(["--lane", each] for each in ("0", "1001", "many")),
    *(["--rate", each] for each in ("0", "0.009", "-1", "1000.1", "inf", "many")),
]


@pytest.mark.parametrize("options", UNREADABLE, ids=" ".join)
def test_an_option_that_cannot_be_read_is_a_mistyped_one(acme: System, options: Sequence[str]) -> None:
    """Status 2, with the option's name; of a header nothing is quoted."""
    result = run("endpoint", "set", "ep_more", *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
    assert CANARY not in result.output


def test_secrets_come_by_standard_input_in_their_order(acme: System) -> None:
    """The secret first, wherever it stands among the options, then the headers as they are given."""
    options = ["--header", "X-A: -", "--header", "X-Key: plain", "--header", "X-B:-", "--secret", "-"]
    done("endpoint", "set", "ep_more", *options, stdin="the secret\n first of all \nthen the other\n")
    assert secret_of(acme, "ep_more") == "the secret"
    assert headers_of(acme, "ep_more") == {"X-Key": "plain", "X-A": "first of all", "X-B": "then the other"}
    line = run("endpoint", "set", "ep_more", "--header", "X-A: -", stdin="")
    assert (line.exit_code, line.stderr) == (1, "webhooks: header X-A: the value is empty\n")


def test_a_header_is_one_header_however_it_is_written(acme: System) -> None:
    """Setting it again replaces it, and the others stay as they are, also where they cannot be decrypted any more."""
    done("endpoint", "set", "ep_more", "--header", "Authorization: old", "--header", "X-Other: there")
    acme.sql("UPDATE endpoints SET headers = jsonb_set(headers, '{X-Key}', '\"lost\"') WHERE id = 'ep_more'")
    after = done("endpoint", "set", "ep_more", "--header", "AUTHORIZATION: new", "--no-header", "x.other")
    assert sorted(after["headers"]) == ["AUTHORIZATION", "X-Key"]
    done("endpoint", "set", "ep_more", "--header", "X-Key: made anew")
    assert headers_of(acme, "ep_more") == {"AUTHORIZATION": "new", "X-Key": "made anew"}


def test_only_a_new_address_starts_the_breaker_afresh(acme: System) -> None:
    """Of that endpoint, and of no other."""
    for endpoint_id in ("acme", "ep_more"):
        pause(parts.gate(), endpoint_id)
    done("endpoint", "set", "ep_more", "--url", f"{URL}/more", "--lane", "4")
    assert parts.gate().show("ep_more").state is BreakerState.PAUSED
    done("endpoint", "set", "ep_more", "--url", f"{URL}/moved")
    assert parts.gate().show("ep_more").state is BreakerState.WORKING
    assert parts.gate().show("acme").state is BreakerState.PAUSED


@pytest.mark.parametrize("command", ["endpoint add acme --id ep_new", "endpoint set ep_more"])
def test_an_address_that_is_set_while_the_gate_is_away(system: System, command: str) -> None:
    """A new endpoint has no breaker yet; of another, one line says what is left to do, and the secret is printed."""
    system.set(redis_url="redis://127.0.0.1:1/0")
    furnish()
    result = run(*command.split(), "--url", f"{URL}/new", "--generate-secret")
    assert [line for line in result.stdout.splitlines() if line.startswith("secret ")]
    if "add" in command:
        assert (result.exit_code, result.stderr) == (0, "")
    else:
        assert result.exit_code == 1
        assert result.stderr.endswith("once that is mended, run: webhooks breaker reset ep_more\n")
    assert f"{URL}/new" in {row.url for row in rows(system)}


def test_one_endpoint_is_paused_and_resumed(acme: System) -> None:
    """The merchant's others are not; pausing it again leaves the moment as it was."""
    first = done("endpoint", "pause", "ep_more", "--why", "their migration")["paused_at"]
    assert first is not None
    assert done("endpoint", "pause", "ep_more")["paused_at"] == first
    assert done("endpoint", "show", "acme")["paused_at"] is None
    assert done("endpoint", "resume", "ep_more")["paused_at"] is None
    noted = [(line["what"], line["why"]) for line in done("audit")]
    assert noted == [("resumed ep_more", None), ("paused ep_more", None), ("paused ep_more", "their migration")]


def test_one_endpoints_secret_is_rotated(acme: System) -> None:
    """The default one's is not; the overlap ends by `--finish`, and what is wrong names the right command."""
    made = done("endpoint", "rotate-secret", "ep_more")
    assert made["previous_secret_until"] is not None
    assert secret_of(acme, "ep_more") == made["secret"]
    assert secret_of(acme, "acme") == SECRET
    assert "in the middle of a rotation" in refused("endpoint", "rotate-secret", "ep_more")
    assert done("endpoint", "rotate-secret", "ep_more", "--finish")["previous_secret_until"] is None
    assert "no overlap to end" in refused("endpoint", "rotate-secret", "ep_more", "--finish")
    done("endpoint", "rotate-secret", "ep_more", "--secret", "-", "--overlap", "0", stdin="typed in\n")
    assert secret_of(acme, "ep_more") == "typed in"
    acme.sql("UPDATE endpoints SET secret = NULL, url = NULL WHERE id = 'ep_more'")
    assert "webhooks endpoint set ep_more" in refused("endpoint", "rotate-secret", "ep_more")


UNKNOWN = [
    "endpoint set {} --lane 1",
    "endpoint show {}",
    "endpoint pause {}",
    "endpoint resume {}",
    "endpoint rotate-secret {}",
    "endpoint rotate-secret {} --finish",
    "endpoint remove {} --yes",
    "breaker show {}",
    "breaker reset {}",
]


@pytest.mark.parametrize("command", UNKNOWN)
def test_an_unknown_endpoint_is_refused_everywhere(acme: System, command: str) -> None:
    """A mistyped one, one that was removed, and a merchant that has others only: one line, and nothing is done."""
    parts.endpoints().remove("acme")
    parts.endpoints().add("acme", "ep_gone", Changes(url=URL, secret=SECRET))
    parts.endpoints().remove("ep_gone")
    before = rows(acme)
    for unknown in ("ep_nosuch", "ep_gone"):
        assert f"no endpoint {unknown}; see: webhooks endpoint list" in refused(*command.format(unknown).split())
    assert "no merchant nobody; register it with" in refused(*command.format("nobody").split())
    told = "acme has no default endpoint; name another, ep_more, or register it: webhooks merchant set acme --url"
    assert told in refused(*command.format("acme").split())
    assert rows(acme) == before
    assert done("audit") == []


def test_lists_and_facts_say_what_is_set(acme: System) -> None:
    """In a table and as JSON, of all merchants or of one; and what is held there, for what."""
    parts.endpoints().set("other", Changes(url="https://other.example/", secret=SECRET))
    parts.ledger().hold(accept_all({**EVENT, "type": "kyc.x"})["acme"], HeldFor.BREAKER)
    table = run("endpoint", "list").stdout
    assert "3 endpoints" in table
    assert all(word in table for word in ("ep_more", f"{URL}/more", "kyc.*", "the second", "https://other.example/"))
    assert [item["id"] for item in done("endpoint", "list")] == ["acme", "ep_more", "other"]
    assert [item["id"] for item in done("endpoint", "list", "--merchant", "acme")] == ["acme", "ep_more"]
    assert done("endpoint", "list", "--merchant", "nobody") == []
    assert run("endpoint", "list", "--limit", "2").stdout.endswith("the next ones: --after ep_more\n")
    assert [item["id"] for item in done("endpoint", "list", "--after", "ep_more")] == ["other"]
    shown = run("endpoint", "show", "ep_more").stdout.splitlines()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition("  ") for line in shown)}
    said = {"lane": "3", "rate": "0.5", "types": "kyc.*", "headers": "X-Key", "held": "none"}
    assert {name: facts[name] for name in said} == said
    assert done("endpoint", "show", "acme")["held"] == {"breaker": 1}


def test_nothing_secret_shows_anywhere(acme: System, caplog: pytest.LogCaptureFixture) -> None:
    """Not in what any command prints, not in the logs, the audit, the messages, nor in a table of the ledger."""
    caplog.set_level(logging.DEBUG)
    merchant = acme.merchant("sender")
    own = ["--header", f"Authorization: {CANARY}-1", "--header", "X-Secret: -", "--secret", "-"]
    typed = f"{CANARY}-2\n{CANARY}-3\n"
    outputs = [run("endpoint", "add", "sender", "--id", "ep_s", "--url", merchant.url(), *own, stdin=typed).output]
    outputs += [run("endpoint", "set", "ep_s", *own, stdin=typed).output]
    outputs += [run("merchant", "set", "sender", *own, stdin=typed).output]
    outputs += [run("endpoint", "rotate-secret", "ep_s", "--secret", "-", stdin=typed).output]
    looks = [f"{noun} {verb}" for noun in ("endpoint", "merchant") for verb in ("pause", "resume", "show", "list")]
    for look in [*looks, "audit", "breaker list", "breaker show", "status"]:
        named = ["ep_s" if look.startswith(("endpoint", "breaker")) else "sender"]
        for json_ in ((), ("--json",)):
            result = run(*look.split(), *([] if look.endswith(("list", "audit", "status")) else named), *json_)
            assert result.exit_code in {0, 1}
            outputs.append(result.output)
    message = accept_all({**EVENT, "merchant_id": "sender"})["ep_s"]
    assert attempt(message) == Delivered()
    (request,) = merchant.requests
    assert (request.header("Authorization"), request.header("X-Secret")) == (f"{CANARY}-1", f"{CANARY}-3")
    outputs += [run("delivery", "show", message.id, "--json").output]
    outputs += texts_in(acme.servers.redis.url)
    outputs += [str(acme.sql(f"SELECT * FROM {table}")) for table in ("endpoints", "audit", "events", "attempts")]
    outputs.append(caplog.text)
    assert [text for text in outputs if CANARY in text] == []
