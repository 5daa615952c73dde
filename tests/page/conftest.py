"""The dashboard as a test sees it: served in the test's own process, on the real ledger and gate."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
import requests
from waitress.wasyncore import close_all

from tests import courier
from tests.system import System
from webhooks.demo.stage import wait_until
from webhooks.health import workers
from webhooks.page import rounds
from webhooks.page.serving import make_server
from webhooks.process import accounts

PASSWORD = "a password of the tests"
TOKENS = {"anna": "whd_token of anna", "lena": "whd_token of lena"}


@pytest.fixture(scope="session")
def users() -> str:
    """Who may use it: anna acts, lena looks. A hash takes a tenth of a second, so it is made once."""
    hashed = accounts.hash_password(PASSWORD)
    roles = {"anna": "act", "lena": "look"}
    return ",".join(f"{name}:{roles[name]}:{hashed}:{accounts.hash_token(token)}" for name, token in TOKENS.items())


class Site:
    """A running dashboard, and somebody who asks it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False

    def get(self, path: str, **options: Any) -> requests.Response:
        """GET a page."""
        return self.session.get(self.url + path, timeout=30, **options)

    def post(self, path: str, form: dict[str, Any], **options: Any) -> requests.Response:
        """Send a form."""
        return self.session.post(self.url + path, data=form, timeout=30, **options)

    def log_in(self, name: str = "anna", password: str = PASSWORD) -> requests.Response:
        """Log in as a browser without scripts does."""
        form = {"name": name, "password": password, "form_token": self.token_of("/login"), "back": "/audit"}
        return self.post("/login", form)

    def token_of(self, path: str) -> str:
        """Return what the forms of a page carry."""
        found = re.search(r'name="form_token" value="([^"]+)"', self.get(path).text)
        assert found, f"no form at {path}"
        return found[1]

    def act(self, name: str, **fields: Any) -> requests.Response:
        """Send the form of an act, from some page."""
        return self.post(f"/acts/{name}", {"form_token": self.token_of("/audit"), **fields})

    def api(self, method: str, path: str, token: str | None = TOKENS["anna"], **options: Any) -> requests.Response:
        """Ask the API."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return requests.request(method, f"{self.url}/api{path}", headers=headers, timeout=30, **options)

    def text(self, path: str) -> str:
        """Return what a person reads on a page."""
        page = self.get(path)
        assert page.status_code == 200, page.text
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())


@pytest.fixture
def site(system: System, users: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The dashboard, with nobody logged in. Where no worker runs, nobody waits long for one to answer."""
    for name in ("_SOON_S", "_LATER_S"):
        monkeypatch.setattr(workers, name, 0.1)
    system.set(dashboard_users=users)
    with serving() as url:
        yield Site(url)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve the dashboard of this process's settings, and give its address."""
    server = make_server("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        if made := rounds.rounds.made:  # whose threads ask servers that the test takes away
            wait_until(lambda: not made._under_way, "nobody asks the parts any more")
        with contextlib.suppress(OSError):  # closed already: another thread's last word has woken the loop
            server.trigger.pull_trigger(lambda: close_all(server._map))
        thread.join(10)
        server.task_dispatcher.shutdown()


@pytest.fixture
def story(system: System) -> System:
    """A few deliveries: one is delivered, one has failed and is money, one is held for an address, one is due again."""
    good, bad = system.merchant("acme"), system.merchant("strict")
    good.answers(200)
    bad.answers(404)
    event = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
    courier.send({**event, "id": "evt-good", "payment_id": "pay_1"})
    courier.send({**event, "id": "evt-bad", "merchant_id": "strict", "type": "kyc.status_changed"})
    courier.send({**event, "id": "evt-held", "merchant_id": "nobody"})
    bad.answers(503)
    courier.send({**event, "id": "evt-again", "merchant_id": "strict"})
    return system
