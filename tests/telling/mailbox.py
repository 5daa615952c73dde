"""A mail server for tests: it speaks as much SMTP as is needed to take a message, and misbehaves when it is told to."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Any, BinaryIO, Self


class Mailbox:
    """Takes mail on the loopback; `tls` makes it offer STARTTLS, or speak TLS from the first byte where `at_once`.

    `refuses` is an address that it does not know; `drips`: its greeting comes a byte at a time, and never ends.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        at_once: bool = False,
        login: tuple[str, str] | None = None,
        refuses: str = "",
        drips: bool = False,
    ) -> None:
        self._tls, self._at_once, self._login, self._refuses, self._drips = tls, at_once, login, refuses, drips
        self.messages: list[EmailMessage] = []
        self.said: list[str] = []  # in the clear
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._closed.set()
        self._thread.join(10)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with contextlib.suppress(OSError):
                    self._talk(connection)
                connection.close()

    def _talk(self, connection: socket.socket) -> None:  # noqa: C901 - one line for each word
        if self._drips:
            while not self._closed.is_set():
                connection.sendall(b"2")
                self._closed.wait(0.01)  # a byte at a time is what it is about
        secured = self._at_once
        if secured:
            assert self._tls
            connection = self._tls.wrap_socket(connection, server_side=True)
        lines: BinaryIO = connection.makefile("rb")

        def say(*answers: str) -> None:
            connection.sendall("".join(f"{each}\r\n" for each in answers).encode())

        say("220 mail.test")
        while line := lines.readline():
            word = line.decode().strip()
            if not secured:
                self.said.append(word)
            match word.upper().split()[0]:
                case "EHLO":
                    offers = ["STARTTLS"] if self._tls and not secured else []
                    offers += ["AUTH PLAIN"] if self._login else []
                    say("250-mail.test", *(f"250-{each}" for each in offers), "250 8BITMIME")
                case "STARTTLS":
                    say("220 go on")
                    assert self._tls
                    connection = self._tls.wrap_socket(connection, server_side=True)
                    lines, secured = connection.makefile("rb"), True
                case "AUTH":
                    given = base64.b64decode(word.split()[2]).decode().split("\0")[1:]
                    say("235 welcome" if tuple(given) == self._login else "535 PWCANARY is wrong")
                case "RCPT" if self._refuses and self._refuses in word:
                    say("550 nobody")
                case "DATA":
                    say("354 go on")
                    self._take(lines)
                    say("250 taken")
                case "QUIT":
                    say("221 bye")
                    return
                case _:
                    say("250 well")

    def _take(self, lines: Any) -> None:
        raw = b""
        while (line := lines.readline()) != b".\r\n":
            raw += line.removeprefix(b".")
        self.messages.append(message_from_bytes(raw, policy=policy.default))
