"""The merchants that fall sick: a TLS server in a process of its own whose ports change how they answer at one moment.

healthy: 200 at once · hang: nothing ever · slow: 200 after 9 s · two: 200 after 2 s · endless: 200 and a body that
drips on and never ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
from collections.abc import Mapping, Sequence

from benchmarks.child import Child, Command

HEALTHY, HANG, SLOW, TWO, ENDLESS = "healthy", "hang", "slow", "two", "endless"
_WAITS = {HEALTHY: 0.0, SLOW: 9.0, TWO: 2.0}
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Sick(Child):
    """The server as the benchmarks use it: `fall` changes some of its merchants, counted from the first."""

    def __init__(self, environment: Mapping[str, str], ports: Sequence[int], certificate: str) -> None:
        super().__init__("benchmarks.sick", environment)
        self._count = len(ports)
        self.ask({"ports": list(ports), "certificate": certificate})

    def fall(self, how: str, count: int, first: int = 0) -> None:
        """Let `count` merchants, from number `first` on, answer so from now on."""
        self.ask({"how": how, "first": first, "count": count})

    def recover(self) -> None:
        """Let all answer at once again."""
        self.fall(HEALTHY, self._count)


class Server:
    """Listens on every port, and answers as it was told last."""

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._how: dict[int, str] = {}
        self._servers: list[asyncio.Server] = []

    async def handle(self, command: Command) -> None:
        """Open the ports, or change how some answer."""
        if "ports" not in command:
            for port in self._ports[command["first"] :][: command["count"]]:
                self._how[port] = command["how"]
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(command["certificate"])
        self._ports = command["ports"]
        self._how = dict.fromkeys(self._ports, HEALTHY)
        for port in self._ports:
            server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=context, backlog=512)
            self._servers.append(server)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
            while True:
                await _read_request(reader)
                await self._answer(port, reader, writer)
        writer.close()

    async def _answer(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        how = self._how[port]
        if how == HANG:
            await reader.readexactly(1)  # until the other side gives up
        elif how == ENDLESS:
            writer.write(_ENDLESS)
            while not writer.is_closing() and not reader.at_eof():
                writer.write(b"1\r\n.\r\n")
                await writer.drain()
                await asyncio.sleep(0.2)
            raise ConnectionResetError
        else:
            await asyncio.sleep(_WAITS[how])
            writer.write(_OK)
            await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length or 0))


async def main() -> None:
    """Do what each line says until there are no more."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    server = Server()
    while line := await lines.readline():
        await server.handle(json.loads(line))
        print(json.dumps({"answer": None}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
