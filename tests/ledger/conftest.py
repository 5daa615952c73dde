"""The ledger alone, on an empty database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet, MultiFernet

from tests.ledger.books import Books
from webhooks.ledger.database import Database


@pytest.fixture
def books(database_url: str) -> Iterator[Books]:
    """The ledger, as all its users see it."""
    database = Database(database_url, connections=4)
    yield Books(database, MultiFernet([Fernet(Fernet.generate_key())]), timedelta(days=30))
    database.dispose()
