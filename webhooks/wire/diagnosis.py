"""What came of a POST in plain words: what is the matter, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import assert_never

from webhooks.model import Answer, Refusal, Silence
from webhooks.wire.addresses import Target

_LOOK = "look at what it shows: openssl s_client -connect {host}:{port} -servername {host} -showcerts </dev/null"
_FIREWALL = "a firewall may drop it: is the address right, and does it let our addresses in?"

# By how a cause begins; of several that fit, the first counts.
_OF_SILENCE: tuple[tuple[str, str, str | None], ...] = (
    ("dns: no such host", "the name {host} does not resolve: there is no such host", "check it with: dig {host}"),
    ("dns: ", "the name {host} does not resolve: its name servers gave no answer", "check them with: dig {host}"),
    ("timeout: dns", "the name {host} does not resolve: its name servers are silent", "check them with: dig {host}"),
    ("refused", "the connection was refused: nothing listens on port {port}", "is its server up, and the port right?"),
    ("unreachable", "no way leads to the address of {host}", "is it up, and the address in DNS right?"),
    ("timeout: connect", "nobody answered when we connected", _FIREWALL),
    (
        "timeout: tls",
        "it took the connection, and was silent in the TLS handshake",
        "does HTTPS listen on port {port}?",
    ),
    ("tls: certificate expired", "TLS: its certificate has expired", f"it must be renewed; {_LOOK}"),
    ("tls: certificate not valid yet", "TLS: its certificate is not valid yet", f"is the clock right? {_LOOK}"),
    ("tls: certificate is for another", "TLS: its certificate is for another name than {host}", _LOOK),
    (
        "tls: certificate not trusted",
        "TLS: its certificate's chain is incomplete, or leads to an authority that is not known here",
        f"the server must send its intermediate certificates too, which browsers fetch by themselves; {_LOOK}",
    ),
    (
        "tls: certificate self-signed",
        "TLS: its certificate is signed by itself, or its chain by an authority that is not known here",
        f"it needs one from a public authority; {_LOOK}",
    ),
    ("tls: certificate", "TLS: its certificate is not valid ({cause})", _LOOK),
    ("tls: the answer is not TLS", "TLS: what listens on port {port} speaks no TLS", "is the port that of HTTPS?"),
    (
        "tls: closed during the handshake",
        "TLS: it hung up in the handshake",
        f"it must speak TLS 1.2 or newer, and ask for no certificate of ours; {_LOOK}",
    ),
    ("tls: ", "TLS: the handshake failed ({cause})", f"it must speak TLS 1.2 or newer; {_LOOK}"),
    ("timeout: sending", "it took the connection, and stopped reading the request", None),
    (
        "timeout: ",
        "it took the request, and gave no answer before the deadline",
        "its handler must answer first, and do its work afterwards",
    ),
    (
        "reset: ",
        "it closed the connection without an answer",
        "look into the log of its server",
    ),
    ("protocol: ", "what it answered is no proper HTTP ({cause})", "is the port that of its web server?"),
)

_OF_ANSWER: dict[int, tuple[str, str]] = {
    400: ("it did not understand the request", "look into the log of its handler"),
    401: ("it wants a login, or did not accept the signature", "is the secret the same on both sides?"),
    403: ("it does not let us in", "a firewall, or the check of the signature: is the secret the same on both sides?"),
    404: ("it knows no such path", "is the path of the address right?"),
    405: ("it takes no POST there", "is the path of the address right?"),
    410: ("it says that the address is gone for good", "the merchant must name another"),
    429: ("it has had too many requests", "webhooks endpoint set --rate bounds them"),
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Whether all is well (2xx), what was found, and what can be done about it, where something can."""

    fine: bool
    found: str
    advice: str | None = None


def diagnose(result: Answer | Silence | Refusal, target: Target | None) -> Diagnosis:
    """Say in plain words what came of a POST to `target`, None where its URL leads nowhere."""
    match result:
        case Answer():
            return _of_answer(result)
        case Refusal(cause=cause):
            return Diagnosis(
                False,
                f"our own guard refuses the address, and nothing was sent ({cause})",
                "webhooks go to public addresses by https only, unless a setting lets others through",
            )
        case Silence(cause=cause, ours=True):
            return Diagnosis(False, f"a fault of ours: {cause}", "try again")
        case Silence(cause=cause):
            return _of_silence(cause, target)
        case _:
            assert_never(result)


def _of_silence(cause: str, target: Target | None) -> Diagnosis:
    known = next((each for each in _OF_SILENCE if cause.startswith(each[0])), None)
    _, found, advice = known or (cause, "no answer came ({cause})", None)
    words = {"host": target.host if target else "", "port": str(target.port) if target else "", "cause": cause}
    return Diagnosis(False, found.format(**words), advice and advice.format(**words))


def _of_answer(answer: Answer) -> Diagnosis:
    status = answer.status
    if status // 100 == HTTPStatus.OK // 100:
        return Diagnosis(True, f"all is well: it answered {status}")
    if status // 100 == HTTPStatus.MULTIPLE_CHOICES // 100:
        where = f" to {answer.redirect_host}" if answer.redirect_host else ""
        return Diagnosis(
            False,
            f"it answered {status}, a redirect{where}: none is followed",
            "the address must be the one that answers itself",
        )
    if status // 100 == HTTPStatus.INTERNAL_SERVER_ERROR // 100:
        return Diagnosis(False, f"it answered {status}: its server has a fault", "look into the log of its server")
    if status // 100 > HTTPStatus.INTERNAL_SERVER_ERROR // 100:
        return Diagnosis(False, f"it answered {status}, which is no status of HTTP", "look into the log of its server")
    why, advice = _OF_ANSWER.get(status, ("it does not accept the request", "look into the log of its handler"))
    return Diagnosis(False, f"it answered {status}: {why}", advice)
