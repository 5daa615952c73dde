"""Operators' acts: each is done and told to the audit, or neither; and where nobody knows, the command says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import Result

from tests.command import done, refused, run
from tests.courier import accept
from tests.integration.test_breaker import pause
from tests.system import SECRET, System
from webhooks import parts
from webhooks.errors import AnswerLost
from webhooks.ledger.database import Database, Transaction
from webhooks.ledger.endpoints import Endpoints
from webhooks.model import Changes
from webhooks.settings import get_settings

URL = "https://acme.example/hook"
NEW_URL = f"{URL}/new"
MADE = "merchant set acme --url https://acme.example/hook/new --generate-secret"
ADDED = "endpoint add acme --id ep_new --url https://acme.example/hook/new --generate-secret"
MADE_ANEW = "endpoint set ep_more --generate-secret"
ACTS = {
    MADE: "acme was set",
    ADDED: "ep_new was set",
    MADE_ANEW: "ep_more was set",
    "endpoint set ep_more --no-url --header X-Key:1": "ep_more was set",
    "endpoint rotate-secret ep_more --overlap 0": "the secret of ep_more was replaced",
    "endpoint rotate-secret ep_more --finish": "the overlap of ep_more has ended",
    "endpoint pause ep_more": "ep_more was paused",
    "endpoint resume ep_paused": "ep_paused was resumed",
    "endpoint remove ep_more --yes": "ep_more was removed",
    "endpoint remove acme --yes": "acme was removed",
    "breaker reset ep_more": "the breaker of ep_more was reset",
    "merchant set acme --no-url": "acme was set",
    "merchant rotate-secret acme --overlap 0": "the secret of acme was replaced",
    "merchant rotate-secret acme --finish": "the overlap of acme has ended",
    "merchant pause acme --why x": "acme was paused",
    "merchant resume paused": "paused was resumed",
    "delivery cancel waiting --why x": "they were cancelled",
    "delivery replay failed --why x": "they are being sent again",
    "event replay failed --why x": "failed is being sent again",
    "delivery replay --merchant acme --why x": "the last of them are being sent again",
    "breaker reset acme": "the breaker of acme was reset",
}


@pytest.fixture
def stage(system: System) -> System:
    """A merchant in the middle of a rotation, with an open breaker, a waiting and a failed delivery; one on pause."""
    for merchant_id in ("acme", "paused"):
        done("merchant", "set", merchant_id, "--url", URL, "--secret", SECRET)
    done("merchant", "rotate-secret", "acme")
    done("merchant", "pause", "paused")
    for endpoint_id, merchant_id in (("ep_more", "other"), ("ep_paused", "paused")):
        parts.endpoints().add(merchant_id, endpoint_id, Changes(url=URL, secret=SECRET))
    done("endpoint", "rotate-secret", "ep_more")
    done("endpoint", "pause", "ep_paused")
    for delivery_id in ("waiting", "failed"):
        accept({"id": delivery_id, "type": "kyc.status_changed", "merchant_id": "acme"})
    system.sql(
        "UPDATE deliveries SET state = 'failed', reason = 'rejected', finished_at = now(), sweep_at = NULL"
        " WHERE id = 'failed'"
    )
    for endpoint_id in ("acme", "ep_more"):
        pause(parts.gate(), endpoint_id)
    return system


def everything(system: System) -> Sequence[Any]:
    """Return all that an act could change."""
    tables = [system.sql(f"SELECT * FROM {name} ORDER BY id") for name in ("endpoints", "deliveries", "audit")]
    return [*tables, *(parts.gate().show(endpoint_id).state for endpoint_id in ("acme", "ep_more"))]


@pytest.mark.parametrize("command", ACTS)
def test_an_act_that_cannot_be_told_to_the_audit_is_not_done(stage: System, command: str) -> None:
    """The audit takes no line: nothing is changed, and no secret is printed that does not count."""
    stage.sql("ALTER TABLE audit ADD CHECK (what = '') NOT VALID")
    before = everything(stage)
    result = run(*command.split())
    assert (result.exit_code, result.stderr.splitlines()[-1].partition(" ")[0]) == (1, "webhooks:")
    assert "secret" not in result.stdout
    assert everything(stage) == before


@pytest.fixture
def _answers_lost(stage: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is committed from now on is done, and its acknowledgement never comes."""
    transaction = Database.transaction

    @contextmanager
    def lost(self: Database) -> Iterator[Transaction]:
        with transaction(self) as within:
            yield within
        raise AnswerLost("the ledger cannot be used: gone")

    monkeypatch.setattr(Database, "transaction", lost)


def last_line(result: Result) -> str:
    """Return the refusal, behind whatever the progress has left."""
    return result.stderr.splitlines()[-1]


@pytest.mark.usefixtures("_answers_lost")
@pytest.mark.parametrize(("command", "unsure"), ACTS.items())
def test_an_act_whose_outcome_is_not_known_says_so(command: str, unsure: str) -> None:
    """One line says what is not known, and with which command to look."""
    result = run(*command.split())
    assert result.exit_code == 1
    told = f"webhooks: it is not known whether {unsure}: the ledger cannot be used: gone; look with: webhooks "
    assert last_line(result).startswith(told)


@pytest.mark.usefixtures("_answers_lost")
@pytest.mark.parametrize("json_", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    "command",
    [MADE, ADDED, MADE_ANEW, "merchant rotate-secret acme --overlap 0", "endpoint rotate-secret ep_more --overlap 0"],
)
def test_a_secret_that_may_have_been_stored_is_printed(system: System, command: str, json_: tuple[str, ...]) -> None:
    """It may count from now on, and nobody could read it anywhere else."""
    result = run(*command.split(), *json_)
    printed = result.stdout.replace('"', "").split()
    made = printed[[word.rstrip(":") for word in printed].index("secret") + 1]
    endpoint_id = "ep_new" if command == ADDED else command.split()[2]
    (row,) = system.sql("SELECT secret FROM endpoints WHERE id = :id", id=endpoint_id)
    assert get_settings().cipher.decrypt(bytes(row.secret)).decode() == made.rstrip(",")


def test_ctrl_c_waits_until_a_secret_is_printed(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the secret is being stored: that is done all the same, and the secret reaches the terminal."""
    set_ = Endpoints.set

    def interrupted(self: Endpoints, *given: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return set_(self, *given, **more)

    monkeypatch.setattr(Endpoints, "set", interrupted)
    assert len(done("merchant", "set", "acme", "--url", URL, "--generate-secret")["secret"]) >= 32
    assert system.sql("SELECT id FROM endpoints")[0].id == "acme"


@pytest.mark.usefixtures("stage")
@pytest.mark.parametrize(
    "command",
    [
        "merchant set acme --no-url",
        "merchant rotate-secret acme --overlap 0",
        "breaker reset acme",
        "endpoint add acme --url https://acme.example/new --secret x",
        "endpoint set ep_more --lane 1",
        "endpoint pause ep_more",
        "endpoint resume ep_paused",
        "endpoint rotate-secret ep_more --finish",
        "endpoint remove ep_more --yes",
    ],
)
def test_an_act_may_carry_a_reason(command: str) -> None:
    """`--why` stands in the audit with what was done, and by whom."""
    done(*command.split(), "--why", "they asked for it")
    line = done("audit")[0]
    assert line["why"] == "they asked for it"
    assert line["who"]


def test_a_reset_without_the_gate_is_no_reset(system: System) -> None:
    """The audit tells of what was done."""
    system.set(redis_url="redis://127.0.0.1:1/0")
    parts.endpoints().set("acme", Changes(url=URL, secret=SECRET))
    assert refused("breaker", "reset", "acme")
    assert done("audit") == []
