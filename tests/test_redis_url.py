"""Redis URLs: one meaning for all clients, and a mistake is one line that repeats no password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.url import parse_url as as_kombu_reads
from redis.connection import parse_url as as_redis_reads

from webhooks.process.redis_url import read

VERIFIED = {"ssl_cert_reqs": "required"}


@pytest.mark.parametrize(
    ("url", "plain", "tls"),
    [
        ("redis://h", "redis://h:6379/0", {}),
        ("redis://h:1/", "redis://h:1/0", {}),
        ("redis://:pw@h/3", "redis://:pw@h:6379/3", {}),
        ("redis://user:p%40%2Fw@[::1]:1/07", "redis://user:p%40%2Fw@[::1]:1/7", {}),
        ("redis://user:a;b+c%25@h/0", "redis://user:a%3Bb%2Bc%25@h:6379/0", {}),
        ("rediss://h/0", "rediss://h:6379/0", VERIFIED),
        ("rediss://h?ssl_cert_reqs=required", "rediss://h:6379/0", VERIFIED),
        ("rediss://h?ssl_cert_reqs=CERT_REQUIRED", "rediss://h:6379/0", VERIFIED),
        ("rediss://h?ssl_cert_reqs=CERT_OPTIONAL", "rediss://h:6379/0", {"ssl_cert_reqs": "optional"}),
        ("rediss://h?ssl_cert_reqs=none", "rediss://h:6379/0", {"ssl_cert_reqs": "none"}),
        ("rediss://h?ssl_cert_reqs=CERT_NONE", "rediss://h:6379/0", {"ssl_cert_reqs": "none"}),
        ("rediss://h?ssl_ca_certs=%2Fa%40b.pem", "rediss://h:6379/0", {**VERIFIED, "ssl_ca_certs": "/a@b.pem"}),
        ("rediss://h?ssl_check_hostname=False", "rediss://h:6379/0", {**VERIFIED, "ssl_check_hostname": False}),
        (
            "rediss://h?ssl_certfile=c&ssl_keyfile=k",
            "rediss://h:6379/0",
            {**VERIFIED, "ssl_certfile": "c", "ssl_keyfile": "k"},
        ),
    ],
)
def test_what_a_url_means(url: str, plain: str, tls: dict[str, object]) -> None:
    """Parameters are told apart from the place, and TLS verifies unless the URL says otherwise."""
    found = read(url)
    assert (found.plain, found.tls) == (plain, tls)


@given(
    user=st.text(st.characters(exclude_categories=["Cs"])), password=st.text(st.characters(exclude_categories=["Cs"]))
)
def test_all_clients_read_the_same_login(user: str, password: str) -> None:
    """Whatever is in it, once it is percent-encoded."""
    plain = read(f"redis://{quote(user, safe='')}:{quote(password, safe='')}@h/0").plain
    kombu, redis = as_kombu_reads(plain), as_redis_reads(plain)  # type: ignore[no-untyped-call]
    assert (kombu["userid"] or "", kombu["password"] or "") == (user, password)
    assert (redis.get("username", ""), redis.get("password", "")) == (user, password)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h/0", "not a Redis URL"),
        ("redis:///0", "its host or port"),
        ("redis://h:0/0", "its host or port"),
        ("redis://:canary/x@h/0", "its host or port"),
        ("redis://:1?canary=x@h/0", "its host or port"),
        ("redis://u:1?canary=x@h/0", "its host or port"),
        ("redis://u:1/canary@h/0", "its host or port"),
        ("redis://u:1#canary@h/0", "its host or port"),
        ("redis://:[canary]@h/0", "its host or port"),
        ("redis://:[canary@h/0", "its host or port"),
        ("redis://:a@canary@h/0", "its host or port"),
        ("redis://h/canary", "database's number"),
        ("redis://h/0/1", "database's number"),
        ("redis://h/-1", "database's number"),
        ("redis://h/0;redis://other/0", "database's number"),
        ("redis://h?db=0", "'db' is not known"),
        ("rediss://h?ssl_cert_req=none", "'ssl_cert_req' is not known"),
        ("rediss://h?ssl_cert_reqs=canary", "ssl_cert_reqs must be required, optional or none"),
        ("rediss://h?ssl_check_hostname=canary", "ssl_check_hostname must be true or false"),
        ("rediss://h?ssl_ca_certs=", "ssl_ca_certs names no file"),
        ("rediss://h?ssl_keyfile=k", "needs an ssl_certfile"),
        ("rediss://h?ssl_cert_reqs=none&ssl_cert_reqs=required", "twice"),
        ("redis://h?ssl_cert_reqs=required", "says nothing without TLS"),
    ],
)
def test_what_is_refused(url: str, why: str) -> None:
    """Whatever two clients could read differently; the text holds no piece of a password."""
    with pytest.raises(ValueError, match=why) as refused:
        read(url)
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("parameter", ["ssl_ca_certs", "ssl_certfile"])
@pytest.mark.parametrize("content", [None, "no certificate\n"])
def test_a_file_that_cannot_be_used_is_refused(parameter: str, content: str | None, tmp_path: Path) -> None:
    """Before any connection is made: one line says which parameter names it."""
    file = tmp_path / "file.pem"
    if content:
        file.write_text(content)
    with pytest.raises(ValueError, match=f"the file of its parameter {parameter}.* cannot be used"):
        read(f"rediss://h?{parameter}={file}").check_files()
