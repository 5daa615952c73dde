"""What people see on the pages, without any script."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from tests.page.conftest import Site
from tests.system import System
from webhooks import parts
from webhooks.page.pictures import Bar, draw, most

PAGES = {
    "/": "accepted in a minute",
    "/deliveries": "evt-good",
    "/deliveries?state=failed": "evt-bad",
    "/find?value=pay_1": "evt-good",
    "/delivery?id=evt-bad": "attempt 1",
    "/event?id=evt-good": "SHA-256",
    "/merchants": "acme",
    "/merchant?id=acme": "median answer",
    "/endpoint?id=acme": "working",
    "/failed": "rejected",
    "/audit": "What was done by hand",
}


def test_each_page_shows_what_it_is_for(site: Site, story: System) -> None:
    """Each page is there for whoever may look, and says what it is for."""
    site.log_in("lena")
    assert {path: words for path, words in PAGES.items() if words not in site.text(path)} == {}


def test_what_was_dismissed_is_marked_and_can_be_put_back(site: Site, story: System) -> None:
    """The desk shows it when asked for what was dealt with, and it is back by a button of its own page."""
    site.log_in()
    site.act("dismiss_failures", delivery_ids="evt-bad", why="paid by hand")
    assert "evt-bad" not in site.text("/failed")
    assert re.search(r"evt-bad .* rejected dismissed 404 ", site.text("/failed?all=true"))
    assert 'formaction="/acts/reopen_failures"' in site.get("/failed?all=true").text
    page = site.get("/delivery?id=evt-bad").text
    assert "/acts/reopen_failures" in page
    assert "/acts/dismiss_failures" not in page
    told = site.act("reopen_failures", delivery_ids="evt-bad", why="it was another one", back="/failed")
    assert "1 are back on the desk" in told.text
    assert "evt-bad" in site.text("/failed")
    assert "/acts/dismiss_failures" in site.get("/delivery?id=evt-bad").text
    line = parts.audit().latest(1).items[0]
    assert (line.who, line.what, line.why) == ("anna", "reopening of evt-bad", "it was another one")


def test_no_act_is_offered_that_would_be_refused(site: Site, story: System) -> None:
    """What an operator cancelled never lies on the desk, and cannot be dismissed."""
    site.log_in()
    site.act("cancel_deliveries", delivery_ids="evt-held", why="they asked")
    page = site.get("/delivery?id=evt-held").text
    assert "/acts/replay_deliveries" in page
    assert "/acts/dismiss_failures" not in page


def test_the_desk_is_narrowed_by_its_form(site: Site, story: System) -> None:
    """To one merchant, reason and kind, which stay in the form; the groups are for the whole desk."""
    site.log_in()
    assert "last answer of one of them" in site.text("/failed")
    narrowed = site.get("/failed?merchant_id=strict&reason=rejected&money=false").text
    assert '<input name="merchant_id" value="strict">' in narrowed
    assert "<option selected>rejected</option>" in narrowed
    assert "<option selected>false</option>" in narrowed
    assert "evt-bad" in narrowed
    assert "last answer of one of them" not in narrowed
    assert "evt-bad" not in site.text("/failed?merchant_id=acme")


def test_many_groups_leave_what_failed_in_sight(site: Site, story: System) -> None:
    """The first ones are shown, the others behind one click; none is left out."""
    names = ("event_id", "type", "money", "state", "reason", "due_at", "attempts", "accepted_at", "expires_at")
    story.sql(
        f"""INSERT INTO deliveries (id, merchant_id, endpoint_id, finished_at, {", ".join(names)})
        SELECT 'evt-bad~ep_' || n, 'shop-' || n, 'ep_' || n, finished_at, {", ".join(names)}
        FROM deliveries, generate_series(1, 20) AS n WHERE id = 'evt-bad'"""
    )
    site.log_in()
    page = site.get("/failed").text
    shown, _, more = page[: page.index("<h2>")].partition("<details>")
    groups = [len(re.findall(r"<a href=./merchant\?", part)) for part in (shown, more)]
    assert groups == [12, 9]
    assert "9 groups more" in more


def test_a_picture_says_the_most_in_words_and_draws_what_there_is() -> None:
    """A phone has no room for the scale, and nobody can point at a bar of nothing."""
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    bars = [Bar(noon, value, f"{value} accepted") for value in (0, None, 2500)]
    assert most(bars) == "2,500"
    assert most([Bar(noon, 0.039, "39 ms")], "s") == "39 ms"
    assert most([]) == "0"
    drawn = draw("accepted", "accepted", bars)
    assert re.findall("<title>(.*?)</title>", drawn) == ["12:00: 2500 accepted"]
    assert "at most 2,500 in a bar" in drawn


@pytest.mark.parametrize("path", ["/\\evil.example", "//evil.example", "/nowhere", "/delivery?id=nope"])
def test_a_page_of_nothing_offers_no_way_but_the_overview(site: Site, path: str) -> None:
    """Asking anew would find nothing again, and a made-up address leads nobody elsewhere."""
    site.log_in()
    page = site.get(quote(path, safe="/?="))
    assert page.status_code == 404
    links = re.findall(r'href="([^"]*)"', page.text.partition("<main>")[2])
    assert links == ["/"]


def test_a_part_that_is_away_can_be_asked_again(site: Site, story: System) -> None:
    """The page that says so has the way to itself."""
    site.log_in()
    with story.ledger_away():
        page = site.get("/delivery?id=evt-bad")
    assert page.status_code == 503
    assert '<a href="/delivery?id=evt-bad">try again</a>' in page.text


def test_whose_session_is_over_comes_back_to_the_page_of_the_form(site: Site, story: System) -> None:
    """The act is not done; after the login there is the page where it was to be."""
    form = {"delivery_ids": "evt-bad", "why": "they asked", "back": "/failed?merchant_id=strict"}
    led = site.post("/acts/dismiss_failures", form, allow_redirects=False)
    assert led.headers["Location"] == "/login?back=%2Ffailed%3Fmerchant_id%3Dstrict"
    assert parts.audit().latest(1).items == []


@pytest.mark.parametrize("path", ["/login", "/acts/dismiss_failures", "/nowhere"])
def test_a_form_that_is_too_large_is_a_line(site: Site, path: str, caplog: pytest.LogCaptureFixture) -> None:
    """From whoever sends it, logged in or not: it is not read, and fills no log."""
    for _ in range(2):
        page = site.post(path, {"why": "x" * 300_000}, allow_redirects=False)
        assert page.status_code == (404 if path == "/nowhere" else 413)
        assert 'role="alert">' in page.text
        site.log_in()
    assert "Traceback" not in caplog.text
