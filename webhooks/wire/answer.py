"""Reading an answer from a stranger: strict about the status line, bounded in bytes, honest about where it ended.

`http.client` alone would take `200` from a status line such as `HTTP/1.1 2_00`, hand out `103 Early Hints` as the final
answer, take headers that were cut off for complete ones, and read a chunk of size -1 until memory ends.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any

MAX_HEAD = 64 * 1024
"""Bytes of status lines and headers, interim answers included, that are read from the wire."""

MAX_BODY = 64 * 1024
"""Bytes of a body, chunk sizes included, that are read from the wire."""

_PIECE = 16 * 1024
_STATUS_LINE = re.compile(rb"(HTTP/1\.[01]) +([1-9][0-9]{2})(?:[ \t][^\r\n]*)?\r?\n")
_LONGEST_LINE = 64 * 1024


class Unanswered(http.client.RemoteDisconnected):
    """The connection ended before a single byte of an answer."""


class CutOff(http.client.HTTPException):
    """The connection ended within the status line or the headers."""


class TooLarge(http.client.HTTPException):
    """Status lines and headers of more than `MAX_HEAD` bytes."""


class _Wire(io.RawIOBase):
    """The bytes of one answer as they come off the wire, counted against an allowance."""

    def __init__(self, sock: socket.socket, allowance: int) -> None:
        self._raw = sock.makefile("rb", buffering=0)
        self.allowance = allowance
        self.received = 0
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._raw.readinto(memoryview(buffer)[: self.allowance]) if self.allowance else 0
        self.received += count or 0
        self.allowance -= count or 0
        self.ended = not count
        return count or 0

    def close(self) -> None:
        self._raw.close()
        super().close()


class StrictResponse(http.client.HTTPResponse):
    """One final answer; `begin` skips interim ones (1xx, all of them)."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.wire = _Wire(sock, MAX_HEAD)
        self.surplus = False
        self.fp = io.BufferedReader(self.wire)

    def begin(self) -> None:
        """Read up to the end of the headers. `Unanswered`, `CutOff`, or what `http.client` raises."""
        try:
            super().begin()
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise self._broken_off() from None
        except http.client.HTTPException:
            if self.wire.ended:
                raise self._broken_off() from None
            raise
        if self.wire.ended:
            raise self._broken_off()
        self.wire.allowance = MAX_BODY

    def _broken_off(self) -> http.client.HTTPException:
        if not self.wire.received:
            return Unanswered("")
        return CutOff() if self.wire.allowance else TooLarge()

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            line = self.fp.readline(_LONGEST_LINE)
            match = _STATUS_LINE.fullmatch(line)
            if match is None:
                raise http.client.BadStatusLine("")
            if int(match[2]) >= http.client.OK:
                return match[1].decode(), int(match[2]), ""
            self._skip_headers()

    def _skip_headers(self) -> None:
        while (line := self.fp.readline(_LONGEST_LINE)) not in {b"\r\n", b"\n"}:
            if not line:
                raise CutOff

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes, decoded from chunks and from nothing else, until its end or `MAX_BODY`."""
        while not self._complete and (piece := self._piece()):
            yield piece

    def finish(self) -> bool:
        """Close, and say whether the body was read to its end with nothing after it: another answer may follow."""
        complete = self._complete
        self.close()
        return complete and not self.surplus

    @property
    def _complete(self) -> bool:
        return self.isclosed() or (not self.chunked and self.length == 0)

    def _close_conn(self) -> None:
        # With no allowance left, peeking shows what was buffered and does not touch the socket.
        self.wire.allowance = 0
        self.surplus = bool(self.fp.peek(1))
        super()._close_conn()  # type: ignore[misc]

    def _piece(self) -> bytes:
        # read1 does not count down `length` on every Python of ours, so only chunks are left to it.
        if self.chunked:
            return self.read1(_PIECE)
        if self.length is None:
            return self.fp.read1(_PIECE)
        piece = self.fp.read1(min(_PIECE, self.length))
        self.length -= len(piece)
        return piece
