"""The page in a real browser: Chromium, headless. Where there is none, this is skipped, and says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests import courier
from tests.page.browser import Browser, browsing, find_chromium
from tests.page.conftest import PASSWORD, Site
from tests.system import System
from webhooks import parts
from webhooks.model import Operator, State
from webhooks.operating import desk

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here: install Debian's package `chromium` to try the page in it"
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A Chromium for all tests here: starting one takes a second."""
    with browsing(str(CHROMIUM), tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(running: Browser, site: Site) -> Browser:
    """The browser, of which nothing is left from the test before."""
    running.ask("Network.clearBrowserCookies")
    running.ask("Emulation.setScriptExecutionDisabled", value=False)
    running.open("about:blank")
    running.requested.clear()
    running.complaints.clear()
    return running


def log_in(browser: Browser, site: Site, name: str = "anna") -> None:
    """Log in as a person does."""
    browser.open(f"{site.url}/audit")
    browser.fill("[name=name]", name)
    browser.fill("[name=password]", PASSWORD)
    browser.click("form.login button")
    assert browser.evaluate("location.pathname") == "/audit"


def test_an_act_is_done_end_to_end(browser: Browser, site: Site, story: System) -> None:
    """Log in, find what failed, say why, send it again: it is so in the ledger, and the audit names who and why."""
    log_in(browser, site)
    browser.open(f"{site.url}/failed")
    assert "evt-bad" in browser.text()
    browser.click("tbody a[href*='evt-bad']")
    browser.fill("form[action='/acts/replay_deliveries'] [name=why]", "they have mended it")
    browser.click("form[action='/acts/replay_deliveries'] button")
    assert "1 are being sent again" in browser.text()
    assert "held for replay" in browser.text()
    assert parts.views().delivery("evt-bad").delivery.state is State.HELD
    (line,) = parts.audit().latest(5).items
    assert (line.who, line.what, line.why) == ("anna", "replay of evt-bad", "they have mended it")
    browser.open(f"{site.url}/audit")
    assert "they have mended it" in browser.text()


def test_it_works_without_scripts(browser: Browser, site: Site, story: System) -> None:
    """Login, filters, a choice on the desk and an act need links and buttons only."""
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    log_in(browser, site)
    browser.open(f"{site.url}/deliveries")
    browser.evaluate("document.querySelector('[name=state]').value = 'failed'")
    browser.click("form.filters button")
    assert "evt-bad" in browser.text()
    assert "evt-good" not in browser.text()
    browser.open(f"{site.url}/failed")
    assert browser.evaluate("document.documentElement.dataset.script") is None
    browser.evaluate("document.querySelector('[value=evt-bad]').checked = true")
    browser.fill("form.chosen [name=why]", "called them")
    browser.click("[formaction='/acts/dismiss_failures']")
    assert "1 are dismissed" in browser.text()
    assert parts.desk().numbers().open == 0
    assert parts.views().delivery("evt-bad").delivery.state is State.FAILED


def test_it_is_better_with_its_script(browser: Browser, site: Site, story: System) -> None:
    """The script runs under the page's own policy: it brings what is new, chooses all, and leaves typing alone."""
    log_in(browser, site)
    browser.open(f"{site.url}/deliveries")
    assert browser.evaluate("document.querySelector('.chosen .act button').disabled")
    browser.evaluate("document.querySelector('thead input').click()")
    assert browser.evaluate("document.querySelectorAll('tbody input:checked').length") == 4
    assert not browser.evaluate("document.querySelector('.chosen .act button').disabled")
    browser.evaluate("refresh()")
    assert browser.evaluate("document.querySelectorAll('tbody input:checked').length") == 4
    browser.evaluate("document.querySelector('thead input').click()")
    parts.replays().cancel(["evt-again"])
    browser.evaluate("refresh()")
    browser.wait_for("document.body.innerText.includes('failed: cancelled')")
    browser.evaluate("document.querySelector('thead input').click()")
    assert browser.evaluate("document.querySelectorAll('tbody input:checked').length") == 4
    assert not browser.evaluate("document.querySelector('.chosen .act button').disabled")
    browser.open(f"{site.url}/delivery?id=evt-held")
    browser.fill("[name=why]", "a reason in the making")
    parts.replays().cancel(["evt-held"])
    browser.evaluate("refresh()")
    browser.wait_for("document.body.innerText.includes('failed: cancelled')")
    assert browser.evaluate("document.querySelector('[name=why]').value") == "a reason in the making"


def test_what_is_not_up_to_date_says_so(browser: Browser, site: Site, story: System) -> None:
    """While a part is away a page that lies open tells since when and why, and no more once it is back."""
    log_in(browser, site)
    browser.open(f"{site.url}/failed")
    with story.ledger_away():
        browser.evaluate("refresh()")
        assert "not brought up to date since: ledger: the ledger" in browser.text()
        assert "evt-bad" in browser.text()
    parts.replays().cancel(["evt-held"])
    browser.evaluate("refresh()")
    assert "not brought up to date" not in browser.text()


def test_a_second_click_does_nothing(browser: Browser, site: Site, story: System) -> None:
    """While the first is under way; what was sent twice would be noted twice."""
    log_in(browser, site)
    browser.open(f"{site.url}/delivery?id=evt-bad")
    browser.fill("[action='/acts/note_failures'] [name=why]", "called them")
    twice = (
        "const button = document.querySelector('[action=\"/acts/note_failures\"] button');"
        "window.wasHere = true; button.click(); setTimeout(() => { button.click(); fetch('/alive'); }, 100)"
    )
    with parts.act(Operator("bert"), "it was locked", "webhooks audit") as act:
        act.rows(text("SELECT FROM deliveries WHERE id = 'evt-bad' FOR UPDATE"))  # so that the first takes its time
        browser.evaluate(f"{{ {twice} }}")
        story.wait_until(lambda: browser.has_asked_for(f"{site.url}/alive"), "the second click")
    browser.settle()
    assert "1 are noted" in browser.text()
    assert [note.text for note in parts.desk().dealings("evt-bad").notes] == ["called them"]


def test_the_key_enter_does_no_harm(browser: Browser, site: Site, story: System) -> None:
    """Whoever has typed what is to be noted, and presses it, has sent nothing again and dismissed nothing."""
    log_in(browser, site)
    browser.open(f"{site.url}/failed")
    browser.evaluate("document.querySelector('[value=evt-bad]').click()")
    browser.fill("form.chosen [name=why]", "called them")
    browser.evaluate("window.wasHere = true")
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", windowsVirtualKeyCode=13)
    browser.settle()
    assert [line.what for line in parts.audit().latest(5).items] == ["note on evt-bad"]
    assert parts.views().delivery("evt-bad").delivery.state is State.FAILED


def test_no_page_is_wider_than_a_phone(browser: Browser, site: Site, story: System) -> None:
    """Whatever stands in it: what is wide by nature, a table, is moved within its own frame."""
    long = "x" * 120
    courier.send({"id": long, "type": f"kyc.{long}", "merchant_id": "strict"})
    courier.send({"id": "evt-stranger", "type": "kyc.a", "merchant_id": long})
    desk.note(Operator("anna", long), ["evt-bad"], long)
    log_in(browser, site)
    browser.ask("Emulation.setDeviceMetricsOverride", width=375, height=700, deviceScaleFactor=1, mobile=False)
    try:
        wide = {}
        paths = ["/", "/deliveries", "/delivery?id=evt-bad", f"/delivery?id={long}", f"/event?id={long}", "/merchants"]
        for path in [*paths, f"/merchant?id={long}", "/endpoint?id=strict", "/failed", "/audit", f"/find?value={long}"]:
            browser.open(site.url + path)
            if (width := browser.evaluate("document.scrollingElement.scrollWidth")) > 375:
                wide[path] = width
        assert wide == {}
    finally:
        browser.ask("Emulation.clearDeviceMetricsOverride")


def test_nothing_is_asked_of_anybody_else(browser: Browser, site: Site, story: System) -> None:
    """Each page loads from the dashboard alone, and the browser has nothing to complain of."""
    log_in(browser, site)
    paths = ["/", "/deliveries", "/delivery?id=evt-bad", "/event?id=evt-good", "/merchants", "/merchant?id=acme"]
    for path in [*paths, "/endpoint?id=strict", "/failed", "/audit", "/find?value=pay_1"]:
        browser.open(site.url + path)
        browser.wait_for("document.documentElement.dataset.script === 'runs'")
    assert {f"{site.url}/static/{name}" for name in ("style.css", "page.js", "icon.svg")} <= set(browser.requested)
    assert [url for url in browser.requested if not url.startswith((site.url, "about:"))] == []
    assert browser.complaints == []


def test_a_script_that_gets_into_a_page_does_not_run(browser: Browser, site: Site, story: System) -> None:
    """What a merchant answers or an operator writes is text; and the policy would stop what were not."""
    story.sql("UPDATE attempts SET excerpt = :evil, cause = :evil", evil="<script>window.evil = 1</script>")
    log_in(browser, site)
    for path in ("/failed", "/delivery?id=evt-bad"):
        browser.open(site.url + path)
        assert "<script>window.evil" in browser.evaluate("document.body.textContent")
        assert browser.evaluate("window.evil") is None
    browser.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.evil = 1'}))")
    assert browser.evaluate("window.evil") is None


def test_who_may_look_is_offered_no_act(browser: Browser, site: Site, story: System) -> None:
    """The role look sees everything and has no button of an act."""
    log_in(browser, site, "lena")
    browser.open(f"{site.url}/delivery?id=evt-bad")
    assert "rejected" in browser.text()
    assert browser.evaluate("document.querySelector('[action^=\"/acts\"]')") is None
