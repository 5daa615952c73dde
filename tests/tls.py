"""A Redis that is reached by TLS: what ends it here stands in front of one that speaks none."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from types import TracebackType
from typing import Self


class TlsFront:
    """Ends TLS on a port of its own and passes the bytes on; leaving the `with` block closes every connection."""

    def __init__(self, target: int, context: ssl.SSLContext) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self._loop = asyncio.new_event_loop()
        start = asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context, limit=1 << 20)
        self._server = self._loop.run_until_complete(start)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="tls", daemon=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, unless its handshake has ended after everything else."""
        if self._ended:
            writer.transport.abort()
            return
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._open |= {writer, inner_writer}
            await asyncio.gather(_pass(reader, inner_writer), _pass(inner_reader, writer))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._ended = True
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()  # also one that was about to reach the server behind
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()
