"""Key names: together on one node, apart from everybody else's, and read back as the merchant they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from webhooks.gate.keys import all_states, endpoint_of, keys_of

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


@given(st.text(min_size=1), st.sampled_from(["", "staging", "webhooks"]))
def test_a_key_leads_back_to_its_merchant(merchant_id: str, namespace: str) -> None:
    """So no two merchants share a key, and a scan can name them."""
    assert {endpoint_of(name, namespace) for name in keys_of(merchant_id, namespace)} == {merchant_id}


@pytest.mark.parametrize(("namespace", "first"), [("", "webhooks:{shop}:state"), ("qa", "qa:webhooks:{shop}:state")])
def test_every_key_is_under_the_products_prefix(namespace: str, first: str) -> None:
    """The gate may share its Redis with the broker and with other deployments; a scan for states finds its own only."""
    prefix, _, kind = all_states(namespace).partition("*")

    assert all(name.startswith(prefix) for name in keys_of("shop", namespace))
    assert [name for name in keys_of("shop", namespace) if name.endswith(kind)] == [first]
    assert not any(name.startswith(prefix) for name in keys_of("shop", f"{namespace}2"))
