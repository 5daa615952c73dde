"""How many messages operators get in an hour."""

from __future__ import annotations

import pytest

from webhooks.telling.sharing import share


@pytest.mark.parametrize(
    ("waiting", "per_hour", "lately", "messages"),
    [
        ("", 3, 0, []),
        ("ab", 3, 0, ["a", "b"]),
        ("abc", 3, 0, ["a", "b", "c"]),
        ("abcd", 3, 0, ["a", "b", "cd"]),
        ("abcd", 3, 2, ["abcd"]),
        ("abcd", 3, 3, []),
        ("abcd", 3, 9, []),
        ("a", 1, 0, ["a"]),
        ("ab", 1, 0, ["ab"]),
    ],
)
def test_what_is_above_the_rate_is_summed_up(waiting: str, per_hour: int, lately: int, messages: list[str]) -> None:
    """The oldest come one by one, all others in the last message, and nothing is left out."""
    assert ["".join(each) for each in share(list(waiting), per_hour=per_hour, lately=lately)] == messages
