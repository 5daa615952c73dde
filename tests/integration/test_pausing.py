"""Pausing and resuming asks for a merchant that there is; what a pause holds is shown in tests/worker."""

from __future__ import annotations

import pytest

from tests.command import refused
from tests.system import System


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_merchant_that_is_not_registered_cannot_be_paused(system: System, word: str) -> None:
    """One line, and nothing is registered by the way."""
    assert "no merchant nobody" in refused("merchant", word, "nobody")
    assert system.sql("SELECT id FROM endpoints") == []
