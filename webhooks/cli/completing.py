"""Completion in bash, for which colons and `=` end a word: an id of a payment and its status is three of its words."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_COLON = ":"


class ColonsComplete(BashComplete):
    """Completes what bash takes for several words as the one that it is, and gives back what follows the last colon."""

    _given = 0  # characters of the word that bash has as words of their own

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is typed, and that one."""
        at = int(os.environ["COMP_CWORD"])
        typed = split_arg_string(os.environ["COMP_WORDS"])[: at + 1]
        last = typed[at] if at < len(typed) else ""
        *before, incomplete = joined([*typed[:at], last])
        if _COLON not in last or not last.strip(_COLON):  # else bash was told not to split there
            self._given = incomplete.rfind(_COLON) + 1
        return [word for word in before[1:] if word != "="], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return a proposal as bash's script reads it."""
        return f"{item.type},{item.value[self._given :]}"


def joined(typed: Iterable[str]) -> list[str]:
    """Put together what stood without a space around its colons, as far as anybody can tell."""
    words: list[str] = []
    open_ = False
    for each in typed:
        colons = bool(each) and not each.strip(_COLON)
        if len(words) > 1 and (colons or open_):
            words[-1] += each
        else:
            words.append(each)
        open_ = colons
    return words


add_completion_class(ColonsComplete)
