"""Who is let in, with what, for how long, and what a stranger's page can do: nothing."""

from __future__ import annotations

import logging
import re
import time
from datetime import timedelta

import pytest
import requests

from tests.page.conftest import PASSWORD, TOKENS, Site, serving
from tests.system import System
from webhooks import parts
from webhooks.page import sessions
from webhooks.page.limiting import MOST_OF_ADDRESS, MOST_OF_NAME, WINDOW, Failures
from webhooks.page.table import OPERATIONS
from webhooks.settings import get_settings


def test_nobody_sees_a_page_without_logging_in(site: Site) -> None:
    """Whoever asks is led to the login, and from there to what was asked for."""
    for path in ("/deliveries", "/delivery?id=1", "/failed", "/audit", "/merchant?id=acme"):
        led = site.get(path, allow_redirects=False)
        assert (led.status_code, led.headers["Location"].partition("?")[0]) == (303, "/login"), path
        page = site.get(path)
        assert "Password" in page.text
        assert f'name="back" value="{path}"' in page.text


def test_nobody_asks_the_api_without_a_token(site: Site) -> None:
    """Each operation answers 401, in one line of JSON, before anything is read or done."""
    for operation in OPERATIONS:
        for token in (None, "whd_guessed"):
            answer = site.api(operation.method, operation.path, token)
            assert (answer.status_code, list(answer.json())) == (401, ["error"]), operation.name
            assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_the_cookie_is_kept_from_scripts_and_other_sites(site: Site) -> None:
    """It is HttpOnly and SameSite, and holds no password."""
    led = site.post(
        "/login", {"name": "anna", "password": PASSWORD, "form_token": site.token_of("/login")}, allow_redirects=False
    )
    cookie = led.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert PASSWORD not in cookie


def test_behind_https_the_cookie_goes_over_https_alone(system: System, users: str) -> None:
    """The proxy that is named is believed when it says so, and nobody else."""
    says = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "10.1.2.3"}
    secure = {}
    for proxy in ("127.0.0.1", "10.9.9.9"):
        system.set(dashboard_users=users, dashboard_proxy=proxy)
        get_settings.forget()
        with serving() as url:
            answer = requests.get(f"{url}/login", headers=says, timeout=10)
            secure[proxy] = "Secure" in answer.headers["Set-Cookie"], "Strict-Transport-Security" in answer.headers
    assert secure == {"127.0.0.1": (True, True), "10.9.9.9": (False, False)}


def test_a_session_ends_with_its_logout_for_copies_of_its_cookie_too(site: Site) -> None:
    """Whoever has kept a copy of the cookie is not let in by it any more."""
    site.log_in()
    copy = site.session.cookies.copy()
    assert "Overview" in site.get("/audit").text
    site.post("/logout", {"form_token": site.token_of("/audit")})
    site.session.cookies = copy
    assert "Password" in site.get("/audit").text


def test_a_session_ends_after_a_shift(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes on in it: whoever comes back after eight hours logs in again."""
    site.log_in()
    began = time.time()
    for passed, words in ((sessions.LASTS - timedelta(minutes=1), "Audit"), (sessions.LASTS, "Password")):
        monkeypatch.setattr(sessions, "_now", lambda passed=passed: began + passed.total_seconds())
        assert words in site.get("/audit").text


def test_a_crowd_of_logins_is_turned_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking a password takes memory and time: who would wait for others too long is told so."""
    monkeypatch.setattr(sessions, "_QUEUES_S", 0.01)
    with sessions._AT_ONCE, sessions._AT_ONCE:
        assert site.log_in().status_code == 429
    assert "Audit" in site.log_in().text


def test_a_changed_password_ends_the_sessions_of_the_old_one(system: System, users: str, site: Site) -> None:
    """A session counts for an operator who is as at its begin: not with another role, and not for another name."""
    site.log_in()
    copy = site.session.cookies
    for changed in (users.replace("anna:act", "anna:look"), users.replace("anna:", "carl:")):
        system.set(dashboard_users=changed)
        get_settings.forget()
        sessions.accounts_here.forget()
        site.session.cookies = copy.copy()
        assert "Password" in site.get("/audit").text


def test_a_wrong_name_is_not_told_from_a_wrong_password(site: Site) -> None:
    """Both get the same words and the same status."""
    answers = [site.log_in("anna", "not her password"), site.log_in("nobody", PASSWORD)]
    assert [each.status_code for each in answers] == [401, 401]
    assert all("no such operator, or not this password" in each.text for each in answers)


def test_who_guesses_has_to_wait(site: Site) -> None:
    """After ten failed logins from an address, the right password is refused there as well, for some minutes."""
    for _ in range(MOST_OF_ADDRESS - 1):
        sessions.book().failures.note("127.0.0.1", "somebody")
    assert site.log_in("anna", "a guess").status_code == 401
    refused = site.log_in()
    assert refused.status_code == 429
    assert "try again in" in refused.text


def test_the_failure_after_which_nobody_may_try_is_told_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Its line says for how long; who is turned away meanwhile leaves none, or a stranger could fill the log."""
    for _ in range(MOST_OF_ADDRESS - 1):
        sessions.book().failures.note("127.0.0.1", "somebody")
    with caplog.at_level(logging.INFO, "webhooks"):
        for _ in range(3):
            site.log_in("anna", "a guess")
    (line,) = caplog.messages
    assert re.fullmatch(r'operator\.login_failed {"who": "anna", "origin": "127\.0\.0\.1", "waits_ms": [0-9]+}', line)


def test_failures_are_forgotten_in_time_and_count_by_address_and_name() -> None:
    """By the clock of the test: a window later all is as before; another address may try, up to a name's own bound."""
    now = [0.0]
    failures = Failures(lambda: now[0])
    for _ in range(MOST_OF_ADDRESS):
        failures.note("2001:db8::1", "anna")
    assert failures.wait("2001:db8::2", "carl") == WINDOW  # the same /64
    assert not failures.wait("10.0.0.1", "anna")
    for number in range(MOST_OF_NAME):
        failures.note(f"10.0.{number}.1", "anna")
    assert failures.wait("10.1.0.1", "anna")
    now[0] += WINDOW.total_seconds()
    assert not failures.wait("2001:db8::2", "anna")


def test_a_form_of_a_strangers_page_does_nothing(site: Site, story: System) -> None:
    """Without the session's own token an act is refused, though the cookie comes along, and nothing has changed."""
    fresh = requests.post(f"{site.url}/login", {"name": "anna", "password": PASSWORD, "form_token": ""}, timeout=10)
    assert fresh.status_code == 403
    site.log_in()
    form = {"delivery_ids": "evt-bad", "why": "a stranger wants it"}
    for token in ({}, {"form_token": ""}, {"form_token": "guessed"}):
        refused = site.post("/acts/replay_deliveries", {**form, **token})
        assert refused.status_code == 403
        assert "was not made for this session" in refused.text
    assert parts.audit().latest(1).items == []
    assert parts.views().delivery("evt-bad").delivery.state == "failed"


def test_a_form_that_another_site_sends_does_nothing(site: Site, story: System) -> None:
    """Browsers say where a form comes from: with a token that leaked it is refused all the same."""
    site.log_in()
    site.session.headers["Sec-Fetch-Site"] = "cross-site"
    refused = site.act("replay_deliveries", delivery_ids="evt-bad", why="a stranger wants it")
    assert refused.status_code == 403
    assert parts.audit().latest(1).items == []


def test_the_token_of_a_login_is_not_that_of_the_session(site: Site) -> None:
    """Whoever planted a session before the login does not know what the forms carry after it."""
    before = site.token_of("/login")
    site.log_in()
    assert site.token_of("/audit") != before


def test_who_may_look_does_not_act(site: Site, story: System) -> None:
    """By the page and by the API each act is refused with who and why not, and the audit stays empty."""
    site.log_in("lena")
    form = {"why": "she wants it", "form_token": site.token_of("/audit"), "endpoint_id": "acme", "merchant_id": "acme"}
    for operation in (each for each in OPERATIONS if each.method == "POST"):
        by_page = site.post(f"/acts/{operation.name}", {**form, "event_id": "evt-good"})
        assert by_page.status_code == 403, operation.name
        assert "lena may look, and not act" in by_page.text
        by_api = site.api("POST", operation.path, TOKENS["lena"], json={"why": "she wants it"})
        assert (by_api.status_code, list(by_api.json())) == (403, ["error"]), operation.name
    assert parts.audit().latest(1).items == []


def test_who_may_look_sees_no_form_of_an_act(site: Site, story: System) -> None:
    """What would be refused is not offered."""
    site.log_in("lena")
    for path in ("/delivery?id=evt-bad", "/deliveries", "/failed", "/endpoint?id=acme", "/merchant?id=acme"):
        assert "/acts/" not in site.get(path).text


def test_nobody_is_led_elsewhere(site: Site) -> None:
    """A login goes back to this page only."""
    token = site.token_of("/login")
    form = {"name": "anna", "password": PASSWORD, "form_token": token}
    for back in ("//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        site.session.cookies.clear()
        form["form_token"] = site.token_of("/login")
        led = site.post("/login", {**form, "back": back}, allow_redirects=False)
        assert led.headers["Location"] == "/"


def test_every_answer_forbids_what_the_page_does_not_need(site: Site) -> None:
    """Scripts, styles and pictures come from here alone, none stands in a page, and no other site may frame it."""
    site.log_in()
    for path in ("/audit", "/login", "/nowhere", "/api/status", "/static/style.css"):
        headers = site.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert site.get("/audit").headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=", site.get("/audit").text)
