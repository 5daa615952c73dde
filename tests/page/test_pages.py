"""What people see on the pages, without any script."""

from __future__ import annotations

from tests.page.conftest import Site
from tests.system import System

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
