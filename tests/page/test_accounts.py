"""Who may use the dashboard: what the setting may say, and what it never gives away."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.command import done, run
from webhooks.process import accounts
from webhooks.process.accounts import Rights
from webhooks.settings import Settings

PASSWORD = "a password of the tests"
HASH = f"scrypt.15.8.1.{'a' * 22}.{'b' * 43}"  # well-formed, and of no password that anybody knows


def test_a_password_and_a_token_are_known_by_their_hashes_alone() -> None:
    """Each operator logs in with the password, and programs with the token; nothing of the setting is either."""
    token, hashed = accounts.new_token(), accounts.hash_password(PASSWORD)
    known = accounts.read_accounts(f"anna:act:{hashed}:{accounts.hash_token(token)}, lena:look:{hashed}")
    assert [(each.name, each.role) for each in known] == [("anna", Rights.ACT), ("lena", Rights.LOOK)]
    assert accounts.by_password(known, "lena", PASSWORD) == known[1]
    assert accounts.by_token(known, token) == known[0]
    assert accounts.by_password(known, "anna", f"{PASSWORD}.") is None
    assert accounts.by_password(known, "nobody", PASSWORD) is None
    assert accounts.by_password(known, "anna", hashed) is None
    assert accounts.by_token(known, accounts.hash_token(token)) is None


def test_two_hashes_of_a_password_differ() -> None:
    """Each has a salt of its own, so that equal passwords are not seen to be equal."""
    assert accounts.hash_password(PASSWORD) != accounts.hash_password(PASSWORD)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("anna", "operator 1 is not written name:role:hash"),
        (f"anna:act:{HASH},x y:look:{HASH}", "operator 2 is not written name:role:hash"),
        (f"anna:admin:{HASH}", "the role of anna is not one of look, act"),
        ("anna:act:secret-canary", "hash 1 of anna is none"),
        (f"anna:act:{HASH}:sha256.12", "hash 2 of anna is none"),
        (f"anna:act:scrypt.40.8.1.{'a' * 22}.{'b' * 43}", "hash 1 of anna is none"),  # 8 TiB for a login
        (f"anna:act:{HASH},anna:look:{HASH}", "anna is named twice"),
    ],
)
def test_what_is_not_an_operator_is_one_line_that_quotes_no_secret(text: str, complaint: str) -> None:
    """The line names the operator by place or name, never what stands where a hash should."""
    with pytest.raises(ValueError, match=complaint) as caught:
        accounts.read_accounts(text)
    assert "canary" not in str(caught.value)
    assert HASH not in str(caught.value)


def test_the_setting_is_checked_at_start_and_masked() -> None:
    """A wrong one keeps every process from starting, and a right one is printed nowhere."""
    key = "M" * 43 + "="
    with pytest.raises(ValueError, match="operator 1 is not written"):
        Settings(database_url="postgresql://h/d", secrets_key=key, dashboard_users="anna")
    settings = Settings(database_url="postgresql://h/d", secrets_key=key, dashboard_users=f"anna:act:{HASH}")
    assert HASH not in repr(settings)


def test_the_command_makes_hashes_and_tokens() -> None:
    """`dashboard hash` asks for a password, and `dashboard token` shows a token once, with its hash."""
    made = run("dashboard", "hash", stdin=f"{PASSWORD}\n")
    (account,) = accounts.read_accounts(f"anna:act:{made.stdout.strip()}")
    assert account.knows(PASSWORD)
    token = done("dashboard", "token", "anna")
    assert accounts.hash_token(token["token"]) == token["hash"]
    assert run("dashboard", "hash", stdin="short\n").exit_code == 1


@pytest.mark.parametrize(
    ("piped", "line"),
    [(b"", "a password has 12 characters or more"), (b"\xff long enough, but in what?\n", "the password is not UTF-8")],
)
def test_a_password_from_a_pipe_is_read_there(piped: bytes, line: str) -> None:
    """Nobody is asked at a terminal, nothing is said about one, and what is no password is a line."""
    command = [sys.executable, "-m", "webhooks", "dashboard", "hash"]
    told = subprocess.run(command, input=piped, capture_output=True, check=False)
    assert (told.returncode, told.stdout, told.stderr.decode()) == (1, b"", f"webhooks: {line}\n")


def test_a_dashboard_without_operators_does_not_start() -> None:
    """It says which setting is missing, and with which command to make it; exit 2."""
    environment = {"WEBHOOKS_DATABASE_URL": "postgresql://h/d", "WEBHOOKS_SECRETS_KEY": "M" * 43 + "="}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        result = run("dashboard", "--port", "0")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "WEBHOOKS_DASHBOARD_USERS is not set" in result.stderr
