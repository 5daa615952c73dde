"""What the story relies on in a sender; `tests/wire` has the rest."""

from __future__ import annotations

import pytest

from tests.contracts.benches import SenderBench
from webhooks.errors import LocalFault
from webhooks.model import Answer, Refusal, Silence

BODY = b'{"n":1}'


@pytest.mark.parametrize("status", [200, 404, 503])
def test_an_answer_is_a_value(sender_bench: SenderBench, status: int) -> None:
    """Whatever it says; the body arrives as it is."""
    sender_bench.answers(status)
    answer = sender_bench.sender.post(sender_bench.url, {"X-Webhook-Id": "evt-1"}, BODY)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.resent, sender_bench.bodies()) == (status, False, [BODY])


def test_no_answer_is_a_value(sender_bench: SenderBench) -> None:
    """With a word of why, which is the merchant's affair."""
    silence = sender_bench.sender.post(sender_bench.silent_url, {}, BODY)
    assert isinstance(silence, Silence)
    assert (bool(silence.cause), silence.ours) == (True, False)


def test_an_address_that_must_not_be_used_gets_nothing(sender_bench: SenderBench) -> None:
    """And that is a value, too."""
    refusal = sender_bench.sender.post(sender_bench.forbidden_url, {}, BODY)
    assert isinstance(refusal, Refusal)
    assert (bool(refusal.cause), sender_bench.bodies()) == (True, [])


def test_what_this_machine_cannot_do_is_raised(sender_bench: SenderBench) -> None:
    """It is nobody's answer, and nothing has gone out."""
    with pytest.raises(LocalFault):
        sender_bench.broken.post(sender_bench.url, {}, BODY)
    assert sender_bench.bodies() == []
