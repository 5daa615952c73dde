"""What a recipient answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """What a recipient said to a notification: whether it has it, and in what words.

    `more` is what it said beyond that, for people: it may be anything, and stands in no log.
    """

    taken: bool
    words: str
    more: str = ""
