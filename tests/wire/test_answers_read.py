"""Reading answers without a socket: what comes of any bytes, however they are cut into pieces."""

from __future__ import annotations

import http.client
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhooks.wire.answer import MAX_BODY, MAX_HEAD, StrictResponse, TooLarge

SURPLUS = b"HTTP/1.1 500 Nobody Asked\r\n\r\n"


class Wire:
    """Bytes that come in these pieces, and then the end; `given` counts those that were taken."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._waiting = deque(each for each in pieces if each)
        self.given = 0

    def receive(self, most: int) -> bytes:
        """Give as much as a socket would: some of the next piece."""
        assert most > 0
        if not self._waiting:
            return b""
        piece = self._waiting.popleft()
        if len(piece) > most:
            self._waiting.appendleft(piece[most:])
        self.given += len(piece[:most])
        return piece[:most]


@dataclass
class Read:
    """What was made of the bytes."""

    error: type[Exception] | None = None
    status: int = 0
    headers: dict[str, str] | None = None
    body: bytes = b""
    ended: bool = False
    reusable: bool = False


def read(*pieces: bytes) -> Read:
    """Read an answer that comes in these pieces; nothing but `http.client`'s exceptions may come of it."""
    answer = StrictResponse(Wire(pieces).receive)
    try:
        answer.begin()
    except http.client.HTTPException as error:
        return Read(type(error))
    result = Read(None, answer.status, answer.headers)
    try:
        for piece in answer.pieces():
            result.body += piece
        result.ended = True
    except http.client.HTTPException:
        pass
    result.reusable = answer.reusable
    return result


def read_all(answer: StrictResponse) -> list[bytes]:
    """Read to the end, or to whatever comes before it."""
    answer.begin()
    return list(answer.pieces())


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Cut at these places, wherever they fit."""
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(ends)]


def chunked(*chunks: bytes) -> bytes:
    """Write a body in chunks, with what chunks may have."""
    return b"".join(b"%x;ext=1\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\nTrailer: 1\r\n\r\n"


FRAGMENTS = [
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 404\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 204 \r\n",
        b"\r\n",
        b"\n",
    ),
    *(b"Content-Length: 3\r\n", b"content-length:5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 1_0\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n", b"X: y\r\n"),
    *(
        b" folded\r\n",
        b"no colon\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"-1\r\n",
        b"+3\r\n",
        b"0x3\r\n",
        b"\r",
        b":",
        b"abc",
    ),
]
ANSWERS = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=8), max_size=12).map(b"".join)
STARTED = ANSWERS.map(lambda rest: b"HTTP/1.1 200 OK\r\n" + rest)
PLACES = st.lists(st.integers(0, 400), max_size=20)


@settings(max_examples=400)
@given(data=ANSWERS | STARTED, places=PLACES)
def test_how_the_bytes_are_cut_changes_nothing(data: bytes, places: Sequence[int]) -> None:
    """Whatever they are: the same answer or the same trouble, in one piece as in twenty as byte by byte."""
    whole = read(data)
    for pieces in (cut(data, places), cut(data, range(len(data)))):
        again = read(*pieces)
        # What comes after the end is not always seen already: is_quiet of the connection has the last word.
        assert (again.error, again.status, again.headers) == (whole.error, whole.status, whole.headers)
        assert (again.body, again.ended) == (whole.body, whole.ended)
        assert again.reusable >= whole.reusable


@settings(max_examples=100)
@given(chunks=st.lists(st.binary(min_size=1, max_size=300), max_size=8), in_chunks=st.booleans(), places=PLACES)
def test_a_connection_may_be_used_again_after_the_whole_answer_and_nothing_else(
    chunks: list[bytes], in_chunks: bool, places: Sequence[int]
) -> None:
    """The body is what was sent; a byte less or a byte more, and no other answer is read from there."""
    body = b"".join(chunks)
    framing = b"Transfer-Encoding: chunked" if in_chunks else b"Content-Length: %d" % len(body)
    data = b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + (chunked(*chunks) if in_chunks else body)
    assert read(*cut(data, places)) == Read(None, 200, read(data).headers, body, ended=True, reusable=True)
    assert not read(data + SURPLUS).reusable
    for short in {len(data) - 1, *(place % len(data) for place in places)}:
        assert not read(data[:short]).reusable


@pytest.mark.parametrize(
    ("head", "body", "reusable"),
    [
        (b"Content-Length: 2", b"ok", True),
        (b"content-length:2", b"ok", True),
        (b"Content-Length: 2\r\nConnection: Close", b"ok", False),
        (b"Content-Length: 2\r\nConnection: upgrade, close", b"ok", False),
        (b"Content-Length: 2\r\nTransfer-Encoding: identity", b"ok", True),
        (b"Content-Length: 9\r\nTransfer-Encoding: Chunked", b"ok", True),
        (b"Content-Length: +2", b"ok", False),
        (b"Content-Length: 0_2", b"ok", False),
        (b"Content-Length: 2, 2", b"ok", False),
        (b"Content-Length: " + b"9" * 5000, b"ok", False),
        (b"Content-Length: 1\r\nContent-Length: 2", b"o", False),
        (b"X: 1", b"ok", False),
    ],
)
def test_what_says_where_a_body_ends(head: bytes, body: bytes, reusable: bool) -> None:
    """Plain numbers, chunks, or the end of the connection, after which none is used again."""
    rest = chunked(b"ok") if b"chunked" in head.lower() else b"ok"
    result = read(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + rest)
    assert (result.body, result.reusable) == (body, reusable)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize(("said", "kept"), [(b"", None), (b"close", False), (b"Keep-Alive", True)])
def test_a_connection_of_the_old_protocol_is_kept_only_when_it_says_so(
    version: bytes, said: bytes, kept: bool | None
) -> None:
    """HTTP/1.0 closes unless told otherwise, HTTP/1.1 the other way round."""
    result = read(b"HTTP/%b 200\r\nContent-Length: 0\r\nConnection: %b\r\n\r\n" % (version, said))
    assert result.reusable is (version == b"1.1" if kept is None else kept)


@pytest.mark.parametrize("status", [b"204", b"304"])
@pytest.mark.parametrize("head", [b"Content-Length: 9", b"Transfer-Encoding: chunked", b"X: 1"])
def test_an_answer_without_a_body_is_not_waited_for(status: bytes, head: bytes) -> None:
    """Whatever it announces."""
    assert read(b"HTTP/1.1 " + status + b"\r\n" + head + b"\r\n\r\n").reusable


@pytest.mark.parametrize("size", [b"+2", b"0x2", b"2_0", b" 2", b"2 2", b"", b"two", b"\xd9\xa2", b"0" * 17 + b"2"])
def test_a_chunk_that_other_readers_would_read_otherwise_is_not_read(size: bytes) -> None:
    """Where two disagree on an end, one takes the rest for another answer."""
    result = read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nok\r\n0\r\n\r\n")
    assert (result.status, result.body, result.reusable) == (200, b"", False)


def test_a_chunk_ends_where_its_size_says() -> None:
    """What stands there otherwise is nobody's."""
    result = read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n")
    assert (result.status, result.body, result.reusable) == (200, b"ok", False)


def test_the_first_of_several_headers_counts_and_the_last_head_only() -> None:
    """Interim answers' headers are not the answer's."""
    interim = b"HTTP/1.1 103 Early\r\nRetry-After: 1\r\nLocation: /a\r\n\r\n"
    result = read(interim + b"HTTP/1.1 503 No\r\nretry-after:  2 \r\nRETRY-AFTER: 3\r\nX-\xff: 1\r\nY: \xfc\r\n\r\n")
    assert result.headers == {"retry-after": "2", "y": "\xfc"}


@pytest.mark.parametrize(
    ("endless", "bound"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n", MAX_HEAD),
        (b"HTTP/1.1 200 OK\r\nX: ", MAX_HEAD),
        (b"HTTP/1.1 200 OK\r\n\r\n", MAX_HEAD + MAX_BODY),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", MAX_HEAD + MAX_BODY),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", MAX_HEAD + MAX_BODY),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000, 1 << 20])
def test_no_more_is_taken_than_allowed(endless: bytes, bound: int, piece: int) -> None:
    """Whatever goes on for ever, however it comes."""
    data = (endless + (endless if b"100" in endless else b"1\r\nA\r\n" * 10) * 5000)[: 2 * bound]
    wire = Wire([data[begin : begin + piece] for begin in range(0, len(data), piece)])
    with pytest.raises(TooLarge):
        read_all(StrictResponse(wire.receive))
    assert bound / 2 < wire.given <= bound


@pytest.mark.parametrize(
    "line", [b"a:" + b" " * 60_000 + b"\rx", b"a:x" + b" " * 60_000 + b"y", b"a" + b" " * 60_000 + b":x"]
)
def test_however_many_blanks_a_header_has_reading_comes_to_an_end(line: bytes) -> None:
    """It takes as long as its bytes are many: nobody else in the process could do anything meanwhile (I12)."""
    assert read(b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 0\r\n\r\n").status == 200
