"""Key names: together on one node, apart from everybody else's, and read back as the merchant they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from webhooks.gate.keys import ALL_STATES, keys_of, merchant_of

_HOSTILE = (
    "{",
    "}",
    "{a}",
    "a}b{c",
    "a:state",
    "a b",
    "a%7Db",
    "%",
    "*",
    "магазин",
    "\N{RECEIPT}",
    "\udcff",
    "\n",
    "..",
)


@pytest.mark.parametrize("merchant_id", _HOSTILE)
def test_hostile_ids_make_one_hash_tag(merchant_id: str) -> None:
    """Braces, colons and foreign letters don't tear a merchant's keys apart."""
    names = keys_of(merchant_id)

    assert {name.count("{") for name in names} == {name.count("}") for name in names} == {1}
    assert len({key_slot(name.encode()) for name in names}) == 1


@given(st.text(min_size=1))
def test_a_key_leads_back_to_its_merchant(merchant_id: str) -> None:
    """So no two merchants share a key, and a scan can name them."""
    assert {merchant_of(name) for name in keys_of(merchant_id)} == {merchant_id}


def test_every_key_is_under_the_products_prefix() -> None:
    """The gate may share its Redis with the broker, and a scan for states finds states only."""
    prefix, _, kind = ALL_STATES.partition("*")

    assert all(name.startswith(prefix) for name in keys_of("shop"))
    assert [name for name in keys_of("shop") if name.endswith(kind)] == ["webhooks:{shop}:state"]
