"""Which events are money: every row of the rules."""

import pytest

from webhooks.policy.events import is_money

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
