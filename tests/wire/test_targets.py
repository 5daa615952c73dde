"""The request target: path and query arrive as the merchant gave them, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.merchant import Merchant
from webhooks.model import Answer
from webhooks.wire.sender import Sender

ODD = [
    "", "a", "hook", ".", "..", "/", "//", "~", "%7E", "%7e", "%2f", "%2F", "%41", "%20", "%25", "%00", "[1]", "[", "]",
    ";v=1", ":", ":80", "@", "+", "=", "&", "!$'()*,", "-_", "index.php",
]  # fmt: skip

PATHS = st.lists(st.sampled_from(ODD), max_size=6).map(lambda parts: "/" + "/".join(parts))
QUERIES = st.lists(st.sampled_from([*ODD, "?", "a=b"]), max_size=6).map(lambda parts: "?" + "".join(parts))
TARGETS = st.one_of(PATHS, st.tuples(PATHS, QUERIES).map("".join))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(target=TARGETS)
@example(target="/a/../b")
@example(target="/./a/.")
@example(target="/../..")
@example(target="//other.example/hook")
@example(target="/%7Euser/a%2fb%2Fc")
@example(target="/hook?")
@example(target="/hook??")
@example(target="/hook?a[1]=b&c=[2]")
@example(target="/[1]")
@example(target="/?u=https://other.example:1/?a=b")
def test_an_odd_but_legal_target_arrives_as_it_was_given(target: str, merchant: Merchant, sender: Sender) -> None:
    """Read off the server's socket: no segment is folded, no escape rewritten, nothing dropped at the end."""
    merchant.forget()
    assert sender.post(merchant.url(target), {}, b"{}") == Answer(200, excerpt="ok")
    (request,) = merchant.requests
    assert request.line == f"POST {target} HTTP/1.1"
    assert request.header("Host") == f"localhost:{merchant.port}"


@pytest.mark.parametrize(("rest", "target"), [("", "/"), ("?a=b", "/?a=b"), ("?", "/?")])
def test_a_url_without_a_path_asks_for_the_root(rest: str, target: str, merchant: Merchant, sender: Sender) -> None:
    """HTTP has no empty target; a slash is all that is ever added."""
    sender.post(merchant.url(rest), {}, b"{}")
    assert merchant.requests[0].line == f"POST {target} HTTP/1.1"
