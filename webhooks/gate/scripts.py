"""The gate's Lua, as it is sent: each operation's file with the parts it includes put in front of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)
_OPERATIONS = ("admit", "report", "offer", "drained", "reset", "show")


@dataclass(frozen=True, slots=True)
class Script:
    """One operation: its whole text and the digest under which the server caches it."""

    text: str
    sha: str


def compose(parts: Mapping[str, str] | None = None) -> dict[str, Script]:
    """Return every operation by name; `parts` replaces files of `lua/` by their name without `.lua`."""
    replaced = parts or {}

    def text_of(name: str) -> str:
        own = replaced.get(name) or files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
        return _INCLUDE.sub(lambda include: text_of(include[1]), own)

    return {name: _script(text_of(name)) for name in _OPERATIONS}


def _script(text: str) -> Script:
    # The digest only names the text; it is what EVALSHA asks for.
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
