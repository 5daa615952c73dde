"""Parts that a process has one of, made when they are first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class once(Generic[_T]):  # noqa: N801 - used as a decorator
    """Call the function at most once, however many threads ask at the same time.

    A forked child forgets what was made: connections must not be shared by two processes.
    """

    # One lock for all, held again while one part makes another: two locks could wait for each other.
    _lock = threading.RLock()
    _all: list[once[Any]] = []  # noqa: RUF012 - shared on purpose

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made: list[_T] = []
        self._all.append(self)
        update_wrapper(self, make)

    def __call__(self) -> _T:
        """Return the part."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]

    @property
    def made(self) -> _T | None:
        """The part, if it has been made."""
        return self._made[0] if self._made else None

    def forget(self) -> None:
        """Forget the part, so that it is made anew."""
        self._made.clear()

    @classmethod
    def forget_all(cls) -> None:
        """Forget every part, so that it is made anew."""
        cls._lock = threading.RLock()  # in a forked child the old one may be held by a thread that is not there
        for part in cls._all:
            part.forget()


os.register_at_fork(after_in_child=once.forget_all)
