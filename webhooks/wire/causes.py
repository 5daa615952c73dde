"""What went wrong, in a phrase for an operator: every exception of the sending path is a cause or a fault of ours.

A cause never quotes an exception's text, OpenSSL's reason codes aside: those of requests and urllib3 hold URLs.
"""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
from collections.abc import Iterator

import requests.exceptions
import urllib3.exceptions

from webhooks.errors import InvalidAddress, LocalFault
from webhooks.model import Refusal, Silence
from webhooks.wire.answer import CutOff, TooLarge, Unanswered
from webhooks.wire.deadline import Deadline, Phase
from webhooks.wire.dialing import LOCAL_ERRNOS

CLOSED = "reset: closed before an answer"
"""Reset and closed politely are one cause: under TLS, Python 3.11 cannot tell them apart."""

_NO_SUCH_HOST = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_TEMPORARY = {socket.EAI_AGAIN, socket.EAI_FAIL}

_CERTIFICATE = {
    9: "certificate not valid yet",
    10: "certificate expired",
    18: "certificate self-signed",
    19: "certificate self-signed in its chain",
    20: "certificate not trusted, or its chain incomplete",
    21: "certificate not trusted, or its chain incomplete",
    23: "certificate revoked",
    62: "certificate is for another host",
    64: "certificate is for another address",
}

_TIMEOUTS = (TimeoutError, requests.exceptions.Timeout, urllib3.exceptions.ReadTimeoutError)

_OF_THE_URL = (
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidURL,
    urllib3.exceptions.LocationValueError,
)

_OF_OUR_REQUEST = (
    requests.exceptions.InvalidHeader,
    requests.exceptions.ProxyError,
    urllib3.exceptions.ProxyError,
    http.client.CannotSendRequest,
    http.client.ResponseNotReady,
)

_PHRASES: tuple[tuple[type[BaseException], str], ...] = (
    (Unanswered, CLOSED),
    (CutOff, "protocol: answer cut off in its headers"),
    (TooLarge, "protocol: headers too large"),
    (http.client.RemoteDisconnected, CLOSED),
    (http.client.LineTooLong, "protocol: header line too long"),
    (http.client.BadStatusLine, "protocol: not an HTTP answer"),
    (http.client.IncompleteRead, "protocol: answer cut off"),
    (http.client.HTTPException, "protocol: headers that cannot be read"),
    (ConnectionRefusedError, "refused"),
    (ConnectionError, CLOSED),
    (urllib3.exceptions.NameResolutionError, "dns: no such host"),
    (urllib3.exceptions.ConnectTimeoutError, "unreachable"),
    (urllib3.exceptions.SSLError, "tls: failed"),
    (urllib3.exceptions.HTTPError, "protocol: answer that cannot be read"),
    (requests.exceptions.SSLError, "tls: failed"),
    (requests.exceptions.ConnectionError, CLOSED),
    (requests.exceptions.RequestException, "protocol: answer that cannot be read"),
    (OSError, "unreachable"),
)


def explain(error: Exception, deadline: Deadline) -> Silence | Refusal:
    """Return what to record; `LocalFault` when the fault is this machine's or this program's and nothing was sent.

    Once a request has gone out whole the merchant may have it, and the attempt stands: a fault of ours is then a
    silence that is `ours`, and where the guard refuses a second connection it is the first one that gave no answer.
    """
    try:
        result = _explained(error, deadline)
    except LocalFault as fault:
        if not deadline.sent:
            raise
        return Silence(f"{fault}, after the request was sent", ours=True)
    return Silence(CLOSED) if isinstance(result, Refusal) and deadline.sent else result


def _explained(error: Exception, deadline: Deadline) -> Silence | Refusal:
    if isinstance(error, InvalidAddress):
        return Refusal(str(error))
    if isinstance(error, LocalFault):
        raise error
    layers = list(_layers(error))
    _raise_local(layers)
    if _is_of_the_url(layers[-1], deadline):
        return Refusal("url: cannot be used as an address")
    if deadline.passed or any(isinstance(layer, _TIMEOUTS) for layer in layers):
        return Silence(f"timeout: {deadline.phase}")
    for layer in reversed(layers):
        phrase = _phrase(layer, deadline.phase)
        if phrase is not None:
            return Silence(phrase)
    return _unforeseen(error, deadline)


def _layers(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and those it wraps, the innermost last."""
    seen: set[int] = set()
    layer: BaseException | None = error
    while layer is not None and id(layer) not in seen:
        seen.add(id(layer))
        yield layer
        inside = (getattr(layer, "reason", None), *layer.args, layer.__cause__)
        layer = next((each for each in inside if isinstance(each, BaseException)), None)


def _raise_local(layers: list[BaseException]) -> None:
    for layer in layers:
        if isinstance(layer, _OF_OUR_REQUEST):
            raise LocalFault(f"request: could not be made ({type(layer).__name__})") from None
        if isinstance(layer, OSError) and not isinstance(layer, ssl.SSLError) and layer.errno in LOCAL_ERRNOS:
            raise LocalFault(f"network: {errno.errorcode[layer.errno]} on this machine") from None
        if isinstance(layer, MemoryError):
            raise LocalFault("memory: none left on this machine") from None


def _is_of_the_url(error: BaseException, deadline: Deadline) -> bool:
    """Say so of a name that the codecs of idna refuse, in the look-up; later, Unicode trouble is in our headers."""
    return isinstance(error, _OF_THE_URL) or (isinstance(error, UnicodeError) and deadline.phase is Phase.DNS)


def _phrase(error: BaseException, phase: Phase) -> str | None:
    match error:
        case socket.gaierror():
            return _of_dns(error)
        case ssl.SSLCertVerificationError():
            return "tls: " + _CERTIFICATE.get(getattr(error, "verify_code", 0), "certificate not valid")
        case ssl.SSLError():
            return _of_tls(error, phase)
        case OSError() if phase is Phase.TLS and error.errno is not None:
            return "tls: closed during the handshake"
    return next((phrase for kind, phrase in _PHRASES if isinstance(error, kind)), None)


def _of_dns(error: socket.gaierror) -> str:
    if error.errno in _NO_SUCH_HOST:
        return "dns: no such host"
    return "dns: temporary failure" if error.errno in _TEMPORARY else "dns: the name cannot be resolved"


def _of_tls(error: ssl.SSLError, phase: Phase) -> str:
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "tls: closed during the handshake" if phase is Phase.TLS else CLOSED
    reason: str = getattr(error, "reason", None) or "failed"
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}:
        return "tls: the answer is not TLS"
    return "tls: " + reason.lower().replace("_", " ")


def _unforeseen(error: Exception, deadline: Deadline) -> Silence:
    """Nobody thought of this one. Once an answer is being read it is the answer's doing; before that, our bug.

    Not chained: a text with a URL in it might reach the log by way of the traceback. The place is named instead.
    """
    name = type(error).__name__
    if deadline.phase in {Phase.HEADERS, Phase.BODY}:
        return Silence(f"protocol: answer that cannot be read ({name})")
    raise LocalFault(f"unforeseen: {name} {_place(error)}") from None


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    return f"in {trace.tb_frame.f_globals.get('__name__', '?')}, line {trace.tb_lineno}"
