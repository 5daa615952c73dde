"""A notification as an e-mail, handed to a mail server within some seconds."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from pathlib import Path
from typing import ClassVar

from webhooks.observing.operators import RecipientName
from webhooks.process.smtp_url import SmtpUrl
from webhooks.telling.said import Said
from webhooks.telling.wording import Notification

_PATIENCE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class MailRecipient:
    """Addresses of the operators', and the server that takes mail for them."""

    name: ClassVar = RecipientName.MAIL
    server: SmtpUrl
    sender: str
    to: Sequence[str]
    ca_bundle: Path | None = field(default=None, repr=False)
    patience: timedelta = _PATIENCE

    def tell(self, notification: Notification) -> Said:
        """Hand it to the server; one that refuses a single address has not taken it."""
        try:
            refused = self._hand_over(self._message(notification))
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return Said(False, _in_words(error))
        if refused:
            return Said(False, f"the server {self.server.host} refused {', '.join(refused)}")
        return Said(True, f"the server {self.server.host} has taken it")

    def _message(self, notification: Notification) -> EmailMessage:
        message = EmailMessage()
        message["Subject"] = f"[webhooks] {notification.subject}"
        message["From"], message["To"] = self.sender, ", ".join(self.to)
        message["Date"] = format_datetime(notification.at)
        message["Message-ID"] = make_msgid(notification.id, domain=self.sender.rpartition("@")[2] or "localhost")
        message["Auto-Submitted"] = "auto-generated"  # so that nobody's absence is answered to it
        message.set_content(notification.text)
        return message

    def _hand_over(self, message: EmailMessage) -> Sequence[str]:
        seconds = self.patience.total_seconds()
        server, context = self.server, ssl.create_default_context(cafile=self.ca_bundle)
        client = smtplib.SMTP_SSL(timeout=seconds, context=context) if server.tls else smtplib.SMTP(timeout=seconds)
        client._host = server.host  # type: ignore[attr-defined]  # noqa: SLF001 - by which certificates are checked
        with _bounded(client, seconds):
            client.connect(server.host, server.port)
            client.ehlo_or_helo_if_needed()
            if not server.tls and (client.has_extn("starttls") or server.user):
                client.starttls(context=context)
                client.ehlo_or_helo_if_needed()
            if server.user is not None:
                client.login(server.user, server.password or "")
            return list(client.send_message(message, self.sender, list(self.to)))


@contextlib.contextmanager
def _bounded(client: smtplib.SMTP, seconds: float) -> Iterator[None]:
    """Cut the connection when the time is over: the socket's own limit begins anew with every byte."""

    def cut() -> None:
        connection = client.sock
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
        with contextlib.suppress(OSError, smtplib.SMTPException):
            client.quit()
    finally:
        timer.cancel()
        client.close()


def _in_words(error: Exception) -> str:  # noqa: PLR0911 - one line for each fault
    """Say what went wrong; what the server said is a stranger's, and stays out of it but for its code."""
    match error:
        case smtplib.SMTPAuthenticationError(smtp_code=code):
            return f"the server does not take the user and password ({code})"
        case smtplib.SMTPNotSupportedError():
            return "the server offers no TLS, without which no password is sent, or no login"
        case smtplib.SMTPRecipientsRefused(recipients=recipients):
            return f"the server refused {', '.join(recipients)}"
        case smtplib.SMTPResponseException(smtp_code=code):
            return f"the server refused it ({code})"
        case ssl.SSLCertVerificationError(verify_message=why):
            return f"the server's certificate is not valid: {why}"
        case smtplib.SMTPServerDisconnected() | TimeoutError():
            return "the server broke off, or took too long"
        case OSError(strerror=str(why)):
            return f"the server cannot be reached: {why}"
        case _:
            return f"it could not be handed over: {type(error).__name__}"
