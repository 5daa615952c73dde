"""Which events are money: every row of the rules; and which an endpoint may say that it wants."""

import pytest

from webhooks.errors import NotPossible
from webhooks.policy.events import MOST_WANTED, checked_wanted, is_money

MONEY = [
    ("payment.status_changed", "paid"),
    ("payment.status_changed", "settled"),
    ("payment.status_changed", "refunded"),
    ("withdrawal.status_changed", "completed"),
    ("exchange.status_changed", "completed"),
    ("refund.completed", None),
    ("refund.completed", "anything"),
    ("refund.reversed", None),
]

NOT_MONEY = [
    ("payment.status_changed", "amount_mismatch"),
    ("payment.status_changed", "expired"),
    ("payment.status_changed", "cancelled"),
    ("payment.status_changed", "failed"),
    ("payment.status_changed", "completed"),  # completed is money elsewhere
    ("payment.status_changed", "Paid"),
    ("payment.status_changed", None),
    ("payment.status_changed", ["paid"]),
    ("withdrawal.status_changed", "failed"),
    ("withdrawal.status_changed", "paid"),
    ("exchange.status_changed", "failed"),
    ("refund.rejected", None),
    ("refund.failed", None),
    ("refund.failed", "completed"),
    ("subscription.status_changed", "paid"),
    ("kyc.status_changed", "completed"),
    ("gateway.status_changed", "completed"),
    ("payment.delivery_proof_reminder", "paid"),
    ("a.type.not.named", "paid"),
]


@pytest.mark.parametrize(("event_type", "status"), MONEY)
def test_money_has_moved(event_type: str, status: object) -> None:
    """These events are about money that has moved."""
    assert is_money(event_type, status)


@pytest.mark.parametrize(("event_type", "status"), NOT_MONEY)
def test_no_money_has_moved(event_type: str, status: object) -> None:
    """Everything else is not money, whatever it looks like."""
    assert not is_money(event_type, status)


WANTED = [
    ["refund.completed"],
    ["payment.*"],
    ["payment.card.*", "payment", "payments.x", "kyc.status_changed"],
    ["payment."],
    ["a type with blanks", "Платёж.*"],
    [f"type.{number}" for number in range(MOST_WANTED)],
]


@pytest.mark.parametrize("types", WANTED, ids=lambda types: types[0])
def test_types_may_be_exact_ones_and_all_under_a_name(types: list[str]) -> None:
    """They come back as they were given, in their order."""
    assert checked_wanted(types) == tuple(types)


def test_a_type_that_is_given_twice_is_wanted_once() -> None:
    """The first place counts; and a hundred are counted without those that come again."""
    assert checked_wanted(["b", "payment.*", "b", "a", "payment.*"]) == ("b", "payment.*", "a")
    many = [f"type.{number}" for number in range(MOST_WANTED)]
    assert checked_wanted([*many, *many]) == tuple(many)


@pytest.mark.parametrize(
    "wrong", ["*", ".*", "*.paid", "payment*", "pay*ment", "payment.*.paid", "a.*.*", "**", "a.**"]
)
def test_a_star_stands_for_all_under_a_name_and_nothing_else(wrong: str) -> None:
    """Anywhere else it would look as if it did something; the line names the type."""
    with pytest.raises(NotPossible) as refused:
        checked_wanted(["payment.*", wrong])
    assert str(refused.value) == f"type {wrong}: a star only stands for all types under a name, as in payment.*"


def test_a_filter_has_a_bound_and_is_never_empty() -> None:
    """Nobody wants nothing, and each type is compared with each event that is accepted."""
    with pytest.raises(NotPossible, match=f"at most {MOST_WANTED}, not {MOST_WANTED + 1}"):
        checked_wanted(f"type.{number}" for number in range(MOST_WANTED + 1))
    with pytest.raises(NotPossible, match="there is none"):
        checked_wanted([])
