"""What can be asked and done here, as a table: one function each, whose types say what it takes and what it answers.

The API's routes, its document and the page's forms are all made from it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, get_type_hints

from webhooks import parts
from webhooks.errors import Refused
from webhooks.model import Operator
from webhooks.page import typed
from webhooks.process.accounts import Account, Rights

PATIENCE = timedelta(seconds=5)
"""How long a read waits for the ledger: a person waits for it, and has a thread of the page."""

_IN_PATH = re.compile(r"{(\w+)}")


class NotAllowed(Refused):
    """The operator's role does not go that far."""


@dataclass(frozen=True)
class Operation:
    """A read or an act. `run` takes the names in `path`, and `wish`, a dataclass of what else may be said.

    An act takes `by` as well; the `why` of its wish is the operator's. `tell` says in a line what came of it.
    """

    method: Literal["GET", "POST"]
    path: str
    run: Callable[..., Any]
    tell: Callable[[Any], str] = field(default=str)

    @property
    def name(self) -> str:
        """Its name, which is its function's."""
        return self.run.__name__

    @property
    def role(self) -> Rights:
        """What an operator needs for it."""
        return Rights.LOOK if self.method == "GET" else Rights.ACT

    @property
    def names(self) -> list[str]:
        """What stands in its path."""
        return _IN_PATH.findall(self.path)

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]

    @cached_property
    def wish(self) -> type[Any]:
        """What else may be said, as a dataclass."""
        kind: type[Any] = self._types.get("wish", typed.Nothing)
        return kind

    @property
    def answer(self) -> Any:
        """What it answers, as a type."""
        return self._types["return"]

    @cached_property
    def many(self) -> set[str]:
        """The fields of the wish that hold several values."""
        schemas, _, _ = typed.field_schemas(self.wish)
        return {name for name, schema in schemas.items() if schema.get("type") == "array"}

    @cached_property
    def fields(self) -> set[str]:
        """The fields of the wish."""
        return {each.name for each in dataclasses.fields(self.wish)}

    @cached_property
    def _types(self) -> dict[str, Any]:
        return get_type_hints(self.run, include_extras=True)

    def __call__(self, account: Account, named: Mapping[str, str], given: Mapping[str, object]) -> Any:
        """Do it for an operator. Raises NotAllowed and Unreadable, and what the function raises."""
        if self.role is Rights.ACT and not account.may_act:
            raise NotAllowed(f"{account.name} may look, and not act: that takes the role {Rights.ACT}")
        values: dict[str, Any] = {name: _checked(name, named[name]) for name in self.names}
        wish = typed.read(self.wish, given)
        if self.wish is not typed.Nothing:
            values["wish"] = wish
        if self.role is Rights.ACT:
            values["by"] = Operator(account.name, getattr(wish, "why", None))
        if self.role is Rights.ACT:
            return self.run(**values)
        with parts.database().within(PATIENCE):
            return self.run(**values)


def look(path: str, run: Callable[..., Any]) -> Operation:
    """Return a read."""
    return Operation("GET", path, run)


def act(path: str, run: Callable[..., Any], tell: Callable[[Any], str]) -> Operation:
    """Return an act."""
    return Operation("POST", path, run, tell)


def _checked(name: str, text: str) -> str:
    if not text or len(text) > typed.LONGEST_NAME or "\0" in text or "\ufffd" in text:
        raise typed.Unreadable(f"{name}: no name is written like that")
    return text
