"""A secret is replaced while deliveries are on their way: signed with what is valid when they are sent (E5)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.command import done, refused, run
from tests.courier import accept, attempt, attempt_again, send
from tests.merchant import Request
from tests.remains import texts_in
from tests.system import SECRET, System
from tests.wire.test_signing import independent_hmac
from webhooks import deliver, parts
from webhooks.errors import LocalFault
from webhooks.model import State
from webhooks.policy.decisions import Delivered
from webhooks.signing import verify

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
NEW = "the new secret of the tests"
WHSEC = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def rotate(secret: str = NEW, overlap: str = "24h") -> dict[str, object]:
    """Type `rotate-secret` with a secret on standard input."""
    found: dict[str, object] = done(
        "merchant", "rotate-secret", "acme", "--secret", "-", "--overlap", overlap, stdin=f"{secret}\n"
    )
    return found


def signers(request: Request, *secrets: str) -> tuple[str | None, str | None]:
    """Say, checked by hand, which secret made the page's header and which the one beside it."""
    stamp = request.header("X-Webhook-Timestamp") or ""
    made = {independent_hmac(each.encode(), stamp.encode() + b"." + request.body): each for each in secrets}
    first, second = (request.header(name) for name in ("X-Webhook-Signature", "X-Webhook-Signature-Next"))
    assert first in made
    return made[first], made[second] if second else None


def verifies(request: Request, secret: str) -> bool:
    """Verify as a receiver that holds one secret and checks both headers."""
    headers = [request.header("X-Webhook-Signature"), request.header("X-Webhook-Signature-Next")]
    return verify(secret, timestamp=request.header("X-Webhook-Timestamp"), signature=headers, body=request.body)


def as_received(request: Request) -> dict[str, str]:
    """Return the header lines as they came."""
    return {name: value for name, value in request.headers}  # noqa: C416 - pairs of a tuple, for the verifier


def test_before_during_and_after_an_overlap(system: System) -> None:
    """The page's header is the old secret's until the stated time and the new one's from then on; nothing is missed."""
    merchant = system.merchant("acme")
    send(PAID)
    ends = datetime.fromisoformat(str(rotate(overlap="400ms")["previous_secret_until"]))
    send(PAID)
    before, during = merchant.requests
    assert signers(before, SECRET, NEW) == (SECRET, None)
    if during.at < ends:
        assert signers(during, SECRET, NEW) == (SECRET, NEW)
    system.wait_until(lambda: parts.endpoints().get("acme").previous_secret_until is None, "the overlap is over")
    send(PAID)
    assert signers(merchant.requests[-1], SECRET, NEW) == (NEW, None)
    assert not verifies(merchant.requests[-1], SECRET)


def test_an_overlap_lasts_until_its_stated_time_and_no_longer(system: System) -> None:
    """The ledger's clock decides at the moment of the claim, to the side of each boundary."""
    merchant = system.merchant("acme")
    rotate()
    for left, expected in (("1 minute", (SECRET, NEW)), ("-1 millisecond", (NEW, None))):
        system.sql("UPDATE endpoints SET previous_until = now() + CAST(:left AS interval)", left=left)
        send(PAID)
        assert signers(merchant.requests[-1], SECRET, NEW) == expected


def test_without_an_overlap_the_new_secret_counts_at_once(system: System) -> None:
    """`--overlap 0` leaves nothing of the old secret behind."""
    merchant = system.merchant("acme")
    rotate(overlap="0")
    send(PAID)
    assert signers(merchant.requests[0], SECRET, NEW) == (NEW, None)
    assert system.sql("SELECT previous_secret, previous_until FROM endpoints") == [(None, None)]


def test_retries_waiting_and_deliveries_held_go_out_with_what_is_valid_then(system: System) -> None:
    """Ten retries wait and ten deliveries are held while the secret is rotated: all verify with either secret.

    No secret is in any message, and after `--finish` the new one counts alone, for retries that waited all along too.
    """
    # 404 to a money event: the slow ladder, and the release of what is held goes on at its full pace.
    system.set(slow_waits="2,2,2,2,2,2")
    merchant = system.merchant("acme")
    merchant.answers(404)
    worker = system.start()
    waiting = [deliver.delay(PAID).id for _ in range(10)]
    merchant.wait_for(10, timeout=30)
    done("merchant", "pause", "acme")
    held = [deliver.delay(PAID).id for _ in range(10)]
    system.wait_for_state(State.HELD, *held)
    rotate()
    left_behind = "\n".join(texts_in(system.servers.redis.url)) + worker.log.read_text()
    assert SECRET not in left_behind
    assert NEW not in left_behind
    merchant.forget()
    done("merchant", "resume", "acme")
    merchant.wait_for(20, timeout=30)
    for request in merchant.requests:
        assert signers(request, SECRET, NEW) == (SECRET, NEW)
        assert verifies(request, SECRET)
        assert verifies(request, NEW)
    done("merchant", "rotate-secret", "acme", "--finish")
    merchant.forget()
    merchant.answers(200)
    system.wait_for_state(State.DELIVERED, *waiting, *held)
    assert {signers(request, SECRET, NEW) for request in merchant.requests} <= {(SECRET, NEW), (NEW, None)}
    assert {signers(request, SECRET, NEW) for request in merchant.requests[-10:]} == {(NEW, None)}


def test_a_retry_is_signed_anew(system: System) -> None:
    """The same delivery: its first attempt with the old secret, its second, after the rotation, with both."""
    merchant = system.merchant("acme")
    merchant.answers(503, 200)
    message = accept(PAID)
    attempt(message)
    rotate()
    assert attempt_again(message) == Delivered()
    assert [signers(request, SECRET, NEW) for request in merchant.requests] == [(SECRET, None), (SECRET, NEW)]
    assert len({request.body for request in merchant.requests}) == 1


def test_a_second_rotation_during_an_overlap_is_refused(system: System) -> None:
    """A third secret would cut off whoever still holds the first; one line says when and what else is possible."""
    merchant = system.merchant("acme")
    rotate()
    line = refused("merchant", "rotate-secret", "acme")
    assert "in the middle of a rotation" in line
    assert "--finish" in line
    assert "--overlap 0" in line
    send(PAID)
    assert signers(merchant.requests[0], SECRET, NEW) == (SECRET, NEW)


@pytest.mark.parametrize(
    "command", [["rotate-secret", "acme", "--overlap", "0"], ["set", "acme"]], ids=["rotate-secret", "set"]
)
def test_during_an_overlap_both_secrets_can_be_replaced_at_once(system: System, command: Sequence[str]) -> None:
    """A leak can't wait: `--overlap 0`, like `merchant set`, leaves neither of the two."""
    merchant = system.merchant("acme")
    rotate()
    done("merchant", *command, "--secret", "-", stdin="third\n")
    send(PAID)
    assert signers(merchant.requests[0], SECRET, NEW, "third") == ("third", None)


def test_finished_rotation_makes_room_for_the_next(system: System) -> None:
    """`--finish` ends an overlap at once, and the next rotation begins from the new secret."""
    merchant = system.merchant("acme")
    assert rotate()["previous_secret_until"] is not None
    assert done("merchant", "rotate-secret", "acme", "--finish")["previous_secret_until"] is None
    rotate("third")
    send(PAID)
    assert signers(merchant.requests[0], SECRET, NEW, "third") == (NEW, "third")


def test_the_new_secret_is_made_and_printed_once(system: System) -> None:
    """Without a secret given, one is made; `show` and the operators' record tell of the rotation without it."""
    merchant = system.merchant("acme")
    made = done("merchant", "rotate-secret", "acme")["secret"]
    assert len(made) >= 32
    until = datetime.fromisoformat(done("merchant", "show", "acme")["previous_secret_until"])
    (now,) = system.sql("SELECT now() AS now")
    assert timedelta(hours=23) < until - now.now <= timedelta(hours=24)
    send(PAID)
    assert signers(merchant.requests[0], SECRET, made) == (SECRET, made)
    told = run("merchant", "show", "acme").output + run("merchant", "list").output + run("audit").output
    assert "rotated the secret of acme, overlap 24 h" in told
    assert made not in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["rotate-secret", "nobody"], "no merchant nobody"),
        (["rotate-secret", "keyless"], "keyless has no secret yet"),
        (["rotate-secret", "acme", "--overlap", "31d"], "from 0 to 30d"),
        (["rotate-secret", "acme", "--secret", "a", "--generate-secret"], "exclude each other"),
        (["rotate-secret", "acme", "--finish", "--secret", "a"], "exclude each other"),
        (["rotate-secret", "acme", "--finish", "--secret", ""], "exclude each other"),
        (["rotate-secret", "acme", "--finish"], "acme has no overlap to end"),
        (["rotate-secret", "acme", "--secret", "-"], "the secret is empty"),
        (["rotate-secret", "acme", "--secret", ""], "the secret is empty"),
        (["rotate-secret", "acme", "--secret", "whsec_%CANARY"], "must go on in base64"),
        (["set", "acme", "--secret", "whsec_%CANARY"], "must go on in base64"),
    ],
    ids=" ".join,
)
def test_mistakes_change_nothing(system: System, arguments: Sequence[str], why: str) -> None:
    """A mistake is one line that shows no secret, and the old secret goes on alone."""
    merchant = system.merchant("acme")
    system.sql("INSERT INTO endpoints (id, merchant_id) VALUES ('keyless', 'keyless')")
    line = refused("merchant", *arguments)
    assert why in line
    assert "CANARY" not in line
    assert done("audit") == []
    send(PAID)
    assert signers(merchant.requests[0], SECRET) == (SECRET, None)


@pytest.mark.parametrize("overlap", ["soon", "-1h", "99999999999999d", ""])
def test_an_overlap_that_is_no_duration_is_refused(system: System, overlap: str) -> None:
    """What can't be read as a duration is said so, as a mistyped option."""
    system.merchant("acme")
    result = run("merchant", "rotate-secret", "acme", "--overlap", overlap)
    assert result.exit_code == 2
    assert "--overlap" in result.stderr


def test_a_previous_secret_that_cannot_be_decrypted_is_our_fault(system: System) -> None:
    """As with the secret itself: nothing is sent and nothing spent, and the line names the setting."""
    merchant = system.merchant("acme")
    rotate()
    system.sql("UPDATE endpoints SET previous_secret = 'nonsense'")
    message = accept(PAID)
    with pytest.raises(LocalFault, match="WEBHOOKS_SECRETS_KEY"):
        attempt(message)
    assert merchant.requests == []
    assert system.delivery(message.id)["attempts"] == 0


def test_a_claim_brings_both_secrets_in_one_statement(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overlap costs no second round trip."""
    system.merchant("acme")
    rotate()
    message = accept(PAID)
    statements: list[object] = []
    rows = parts.database().rows

    def counted(statement: Any, *values: Any, **options: Any) -> Any:
        statements.append(statement)
        return rows(statement, *values, **options)

    monkeypatch.setattr(parts.database(), "rows", counted)
    claimed = parts.ledger().claim(message)
    assert (getattr(claimed, "secret", None), getattr(claimed, "previous_secret", None)) == (NEW, SECRET)
    assert len(statements) == 1


@pytest.mark.parametrize(
    ("secret", "receiver"), [(WHSEC, Webhook(WHSEC)), (SECRET, Webhook(SECRET.encode()))], ids=["whsec", "plain"]
)
def test_the_standard_library_verifies_what_arrives(system: System, secret: str, receiver: Webhook) -> None:
    """With `--standard-headers` the standard's own verifier accepts header and body as they came off the wire."""
    merchant = system.merchant("acme")
    done("merchant", "set", "acme", "--standard-headers", "--secret", "-", stdin=f"{secret}\n")
    event = {**PAID, "note": "Zoë 🧾 日本", "amount": "10.50"}
    send(event)
    (request,) = merchant.requests
    assert receiver.verify(request.body, as_received(request)) == {**event, "id": request.webhook_id}
    assert signers(request, secret) == (secret, None)
    with pytest.raises(WebhookVerificationError):
        receiver.verify(request.body + b" ", as_received(request), json_parse=False)


def test_the_standard_library_verifies_with_either_secret_during_an_overlap(system: System) -> None:
    """One header carries both signatures, and after the overlap one."""
    merchant = system.merchant("acme")
    done("merchant", "set", "acme", "--standard-headers")
    rotate(WHSEC)
    send(PAID)
    old, new = Webhook(SECRET.encode()), Webhook(WHSEC)
    for receiver in (old, new):
        receiver.verify(merchant.requests[0].body, as_received(merchant.requests[0]))
    done("merchant", "rotate-secret", "acme", "--finish")
    send(PAID)
    new.verify(merchant.requests[1].body, as_received(merchant.requests[1]))
    with pytest.raises(WebhookVerificationError):
        old.verify(merchant.requests[1].body, as_received(merchant.requests[1]))


def test_standard_headers_can_be_switched_off_again(system: System) -> None:
    """They are a merchant's choice, and changing them touches neither address nor secret."""
    merchant = system.merchant("acme")
    assert done("merchant", "set", "acme", "--standard-headers")["standard_headers"] is True
    assert done("merchant", "set", "acme", "--no-standard-headers")["standard_headers"] is False
    send(PAID)
    assert merchant.requests[0].header("webhook-signature") is None
    assert signers(merchant.requests[0], SECRET) == (SECRET, None)


def test_a_secret_made_for_standard_headers_is_written_as_the_standard_says(system: System) -> None:
    """The standard's libraries take it as it is printed."""
    merchant = system.merchant("acme")
    made = done("merchant", "set", "acme", "--standard-headers", "--generate-secret")["secret"]
    send(PAID)
    Webhook(made).verify(merchant.requests[0].body, as_received(merchant.requests[0]))
    assert done("merchant", "rotate-secret", "acme")["secret"].startswith("whsec_")
