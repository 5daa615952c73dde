"""From which list of messages a worker takes next: all have their turns, and none waits for two of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Turns:
    """Lists in the order in which a message is looked for; the one that gave the last message comes last."""

    def __init__(self) -> None:
        self._lists: list[str] = []

    def among(self, lists: Sequence[str]) -> None:
        """Go on with these lists; those that were there keep their places."""
        kept = [name for name in self._lists if name in lists]
        self._lists = kept + [name for name in lists if name not in kept]

    def took(self, name: str) -> None:
        """Note that a message came from a list."""
        if name in self._lists:
            self._lists.remove(name)
            self._lists.append(name)

    def order(self, wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the lists that are wanted, the next first."""
        return [name for name in self._lists if wanted(name)]
