"""Reading an answer from a stranger: strict about the status line, bounded in bytes, honest about where it ended.

Lenient about the rest: the status line decides, so a header or a body that cannot be read costs no answer, only the
connection. No socket is known here: bytes are asked for, so many at most, and none means that no more will come.
"""

from __future__ import annotations

import http.client
import math
import re
import ssl
from collections.abc import Callable, Iterator
from http import HTTPStatus

MAX_HEAD = 64 * 1024
"""Bytes of status lines and headers, interim answers included, that are read from the wire."""

MAX_BODY = 64 * 1024
"""Bytes of a body, chunk sizes included, that are read from the wire."""

MAX_HEADERS = 100

BREAKS = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""How a connection ends that was not closed politely; what came before it counts all the same."""

_PIECE = 16 * 1024
_LONGEST_STATUS_LINE = 8 * 1024
_STATUS_LINE = re.compile(rb"HTTP/(1\.[01]) +([1-9][0-9]{2})(?:[ \t][^\r]*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BLANKS = b" \t"
_BLANK_LINES = (b"\n", b"\r\n")
_CR = 0x0D
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_CHUNK_SIZE = re.compile(rb"(-?[0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?")
_CHUNK_END = re.compile(rb"")
_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class Unanswered(http.client.RemoteDisconnected):
    """The connection ended before a single byte of an answer."""


class CutOff(http.client.HTTPException):
    """The connection ended within the answer."""


class TooLarge(http.client.HTTPException):
    """Status lines and headers of more than `MAX_HEAD` bytes, or a body of more than `MAX_BODY`."""


class StrictResponse:
    """One final answer; `begin` skips interim ones (1xx, all of them).

    `headers` are the first of each, by their lower-case names. `reusable` turns true when the body was read to its end
    with nothing after it: another answer may follow on this connection.
    """

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._allowance = MAX_HEAD
        self._buffer = bytearray()
        self._version = b""
        self._before_waiting: Callable[[], object] | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self.reusable = False

    def begin(self) -> None:
        """Read up to the end of the headers. `Unanswered`, `CutOff`, or another of `http.client`'s exceptions."""
        lines: list[bytes] = []
        while self.status < HTTPStatus.OK:
            match = self._line_like(_STATUS_LINE, _LONGEST_STATUS_LINE)
            self._version, self.status = match[1], int(match[2])
            lines = self._headers()
        if len(lines) > MAX_HEADERS:
            raise http.client.HTTPException("too many headers")
        for line in lines:
            # No one pattern for all of it: on a stranger's blanks it would go back and forth for hours.
            name, colon, value = line.partition(b":")
            if colon and _NAME.fullmatch(name := name.rstrip(_BLANKS)) and b"\r" not in value:
                self.headers.setdefault(name.decode("ascii").lower(), value.strip(_BLANKS).decode("latin-1"))
        self._allowance = MAX_BODY - len(self._buffer)

    def pieces(self, before_waiting: Callable[[], object] | None = None) -> Iterator[bytes]:
        """Yield the body as it comes, decoded from chunks and from nothing else; raises where it ends too soon.

        `before_waiting` is called once, before anything is asked for that has not come with the head.
        """
        self._before_waiting = before_waiting
        yield from self._body()
        said = self.headers.get("connection", "").lower()
        stays_open = "keep-alive" in said if self._version == b"1.0" else "close" not in said
        self.reusable = stays_open and not self._buffer

    def _body(self) -> Iterator[bytes]:
        length, coding = self.headers.get("content-length", ""), self.headers.get("transfer-encoding", "")
        if self.status in _WITHOUT_BODY:
            return iter(())
        if coding.lower() == "chunked":
            return self._chunks()
        return self._take(int(length) if _LENGTH.fullmatch(length) else math.inf)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._line_like(_CHUNK_SIZE)[1], 16):
            yield from self._take(size if size > 0 else math.inf)
            self._line_like(_CHUNK_END)
        self._headers()  # trailers say nothing to us

    def _take(self, count: float) -> Iterator[bytes]:
        while count > 0:
            if not self._buffer:
                self._more()
            piece = bytes(self._buffer[: int(min(count, _PIECE))])
            del self._buffer[: len(piece)]
            count -= len(piece)
            yield piece

    def _headers(self) -> list[bytes]:
        """Return the lines up to the blank one, which is taken with them; a line ends with LF or CRLF."""
        searched = 0
        while (end := self._end_of_headers(searched)) == 0:
            searched = max(0, len(self._buffer) - 2)  # of a blank line's three bytes two may be here
            self._more()
        block = bytes(self._buffer[:end])
        del self._buffer[:end]
        return [line.removesuffix(b"\r") for line in block.split(b"\n")[:-2]]

    def _end_of_headers(self, searched: int) -> int:
        """Return how many bytes they have with the blank line, none while it has not come."""
        if self._buffer.startswith(_BLANK_LINES):
            return 1 + (self._buffer[0] == _CR)
        ends = [at + len(blank) for blank in (b"\n\n", b"\n\r\n") if (at := self._buffer.find(blank, searched)) >= 0]
        return min(ends, default=0)

    def _line_like(self, pattern: re.Pattern[bytes], longest: int = MAX_HEAD) -> re.Match[bytes]:
        match = pattern.fullmatch(self._line(longest))
        if match is None:
            raise http.client.BadStatusLine("")
        return match

    def _line(self, longest: int = MAX_HEAD) -> bytes:
        """Return the next line without its end, or the beginning of one that has none."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched) + 1) == 0 and len(self._buffer) < longest:
            searched = len(self._buffer)
            self._more()
        line = bytes(self._buffer[: end or longest])
        del self._buffer[: len(line)]
        return line.removesuffix(b"\n").removesuffix(b"\r")

    def _more(self) -> None:
        if not self._allowance:
            raise TooLarge
        if self._before_waiting is not None:
            self._before_waiting()
            self._before_waiting = None
        try:
            received = self._receive(min(_PIECE, self._allowance))
        except BREAKS:
            received = b""
        if not received:
            raise CutOff if self.status or self._buffer else Unanswered("")
        self._allowance -= len(received)
        self._buffer += received
