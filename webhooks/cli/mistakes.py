"""What is mistyped, and an answer that cannot be written: one line each, like any other refusal."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click
from click.exceptions import NoArgsIsHelpError

_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class Told(click.ClickException):
    """A line for a person, with an exit status."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.exit_code = status  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it, to standard error unless told otherwise."""
        click.echo(f"webhooks: {self.message}", file=file, err=file is None)


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turn what would be a usage in many lines, or the trace of a full disk, into one line that says what to do."""
    try:
        yield
    except NoArgsIsHelpError:
        raise  # who says nothing gets the help
    except click.UsageError as error:
        raise Told(_in_words(error), error.exit_code) from None
    except OSError as error:
        if error.errno not in _NOT_WRITTEN or error.filename is not None:
            raise
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for what is flushed at the end
        raise Told(f"the answer could not be written: {error.strerror}", 1) from None


def _in_words(error: click.UsageError) -> str:
    said = " ".join(error.format_message().split()).rstrip(".")
    where = error.ctx.command_path if error.ctx else "webhooks"
    return f"{said[:1].lower()}{said[1:]}; see: {where} --help"
