"""Serving the application: waitress, a small server of threads, since everything behind it waits in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waitress.server import create_server

from webhooks.errors import NotPossible, SettingsError
from webhooks.page.application import make_application
from webhooks.page.rounds import rounds
from webhooks.settings import get_settings

_THREADS = 12  # more than a person waits for at once, while a part that is away holds some
_LARGEST = 512 * 1024
_QUIET_S = 60


def make_server(address: str, port: int) -> Any:
    """Return waitress with the application. Raises SettingsError, and NotPossible for a place that is taken."""
    settings = get_settings()
    if not settings.dashboard_users.get_secret_value():
        raise SettingsError(
            "WEBHOOKS_DASHBOARD_USERS is not set: nobody could log in; "
            "give it name:role:hash, with a hash that `webhooks dashboard hash` makes"
        )
    proxy = str(settings.dashboard_proxy) if settings.dashboard_proxy else None
    try:
        return create_server(
            make_application(),
            host=address,
            port=port,
            threads=_THREADS,
            ident=None,
            max_request_body_size=_LARGEST,
            channel_timeout=_QUIET_S,
            trusted_proxy=proxy,
            trusted_proxy_headers={"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"} if proxy else set(),
            clear_untrusted_proxy_headers=True,
        )
    except OSError as error:
        raise NotPossible(f"cannot serve at {address}:{port}: {error}") from None


def serve(address: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until told to end; `say` hears where. Raises as make_server."""
    server = make_server(address, port)
    rounds().latest()  # so that whoever comes first need not wait for the workers
    # A name such as localhost may stand for several places.
    places = getattr(server, "effective_listen", None) or [(server.effective_host, server.effective_port)]
    say("dashboard: " + ", ".join(f"http://{_host(host)}:{number}" for host, number in places))
    try:
        server.run()
    finally:
        server.close()


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
