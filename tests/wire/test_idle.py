"""Idle connections and their watches, without a merchant: what is kept, what goes first, and that nothing piles up."""

from __future__ import annotations

import random
import resource
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest

from tests.wire.conftest import MakeSender
from webhooks.process import watchdog
from webhooks.process.watchdog import Watchdog
from webhooks.wire import connection as module
from webhooks.wire.connection import Connection, IdleConnections, Key

FAR = 1e6


class Ends:
    """The end of what is watched."""

    def __init__(self, at: float) -> None:
        self.at = at


@pytest.fixture
def dog() -> Iterator[Watchdog]:
    """Start a watchdog, and end it."""
    dog = Watchdog()
    yield dog
    dog.close()


class Line(Connection):
    """A connection that leads nowhere, and says whether it was closed."""

    def __init__(self, key: Key) -> None:
        here, self.there = socket.socketpair()
        super().__init__(key, here, Watchdog().vigil(here))
        self.closed = False

    def close(self) -> None:
        """Close both ends."""
        super().close()
        self.there.close()
        self.closed = True


def line(host: str) -> Line:
    """Open a connection to this host."""
    return Line(("https", host, 443))


def idle(total: int = 4, per_host: int = 2, idle_s: float = 55, age_s: float = 300) -> IdleConnections:
    """Keep so many, for so long."""
    return IdleConnections(total=total, per_host=per_host, idle=timedelta(seconds=idle_s), age=timedelta(seconds=age_s))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have the clock of kept connections in the test's hand."""
    hand = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: hand[0]))
    return hand


def test_the_longest_idle_goes_first_of_a_host_and_of_all() -> None:
    """One too many of a host closes that host's, one too many in all anybody's."""
    kept = idle(total=3, per_host=2)
    lines = [line(host) for host in ("a", "b", "b", "b", "c", "d")]
    for each in lines:
        kept.give(each)
    assert [each.closed for each in lines] == [True, True, True, False, False, False]
    assert len(kept) == 3
    kept.close()
    assert all(each.closed for each in lines)


def test_the_one_used_last_is_taken_first_and_by_its_own_host_only() -> None:
    """It is the likeliest to be open still."""
    kept = idle()
    first, second, other = line("a"), line("a"), line("b")
    for each in (first, second, other):
        kept.give(each)
    assert [kept.take(each.key) for each in (first, first, first, other, other)] == [second, first, None, other, None]
    for each in (first, second, other):
        each.close()


def test_whatever_is_idle_for_too_long_is_closed_by_whoever_comes_next(now: list[float]) -> None:
    """Whichever host comes; and one that was used again meanwhile stays."""
    kept = idle(total=10)
    old, again = line("a"), line("b")
    kept.give(old)
    kept.give(again)
    now[0] += 30
    assert kept.take(again.key) is again
    kept.give(again)
    now[0] += 30
    assert kept.take(("https", "c", 443)) is None
    assert (old.closed, again.closed, len(kept)) == (True, False, 1)
    kept.close()


def test_none_is_used_that_is_too_old(now: list[float]) -> None:
    """Neither is it kept when it comes back, nor taken when it has grown old while idle."""
    kept = idle(age_s=100, idle_s=80)
    grows, comes = line("a"), line("a")
    now[0] += 30
    kept.give(grows)
    now[0] += 75
    kept.give(comes)
    assert comes.closed
    assert kept.take(grows.key) is None
    assert grows.closed
    assert len(kept) == 0


def test_one_that_was_closed_under_us_is_passed_over() -> None:
    """The one below it is taken instead."""
    kept = idle()
    alive, dead = line("a"), line("a")
    kept.give(alive)
    kept.give(dead)
    dead.there.close()
    assert kept.take(alive.key) is alive
    assert dead.closed
    alive.close()


def test_both_books_agree_whatever_is_done(now: list[float]) -> None:
    """A random walk of takes and gives: no bound is passed, none is lost, and what is out of the books is closed."""
    chance = random.Random(7)
    kept = idle(total=6, per_host=3, idle_s=20, age_s=60)
    lines: list[Line] = []
    out: list[Line] = []
    for _ in range(2000):
        now[0] += chance.random() * 2
        key = ("https", chance.choice("abcd"), 443)
        if chance.random() < 0.5:
            taken = kept.take(key) or Line(key)
            assert isinstance(taken, Line)
            assert not taken.closed
            assert now[0] - taken.used_at < 20
            assert now[0] - taken.opened_at < 60
            lines += [] if taken in lines else [taken]
            out.append(taken)
        elif out:
            kept.give(out.pop(chance.randrange(len(out))))
        held = [each for of_host in kept._of.values() for each in of_host]
        assert sorted(map(id, held)) == sorted(map(id, kept._kept))
        assert len(kept) <= 6
        assert all(0 < len(of_host) <= 3 for of_host in kept._of.values())
        assert {id(each) for each in lines if not each.closed} == {id(each) for each in [*held, *out]}
    for each in [*out, *lines]:
        each.close()


@pytest.mark.parametrize(("may_open", "kept"), [(1024, 256), (1 << 20, 2000), (resource.RLIM_INFINITY, 2000)])
def test_idle_connections_leave_descriptors_for_the_rest(
    make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch, may_open: int, kept: int
) -> None:
    """A quarter of what the process may open, and two thousand at most."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (may_open, may_open))
    assert make_sender()._idle._total == kept


def test_exchanges_on_one_connection_have_one_entry_with_the_watchdog(dog: Watchdog) -> None:
    """A thousand exchanges within one deadline pile up nothing."""
    here, there = socket.socketpair()
    with here, there:
        vigil = dog.vigil(here)
        for number in range(1000):
            vigil.begin(time.monotonic() + FAR + number)
            vigil.rest()
        assert len(dog._watched) == 1
        vigil.begin(time.monotonic())
        assert there.recv(1) == b""


def test_a_watch_at_rest_cuts_nothing(dog: Watchdog) -> None:
    """Its entry comes up while it rests, and after that it can begin again."""
    here, there = socket.socketpair()
    other, far = socket.socketpair()
    with here, there, other, far:
        vigil, later = dog.vigil(here), dog.vigil(other)
        vigil.begin(time.monotonic() + 0.01)
        vigil.rest()
        later.begin(time.monotonic() + 0.05)
        assert far.recv(1) == b""
        here.sendall(b"x")
        assert there.recv(1) == b"x"
        vigil.begin(time.monotonic() + 0.01)
        assert there.recv(1) == b""


def test_an_end_that_moves_back_is_kept_to(dog: Watchdog) -> None:
    """The entry comes up at the first end, and is put off to the second; one that moves forward counts at once."""
    here, there = socket.socketpair()
    with here, there:
        vigil = dog.vigil(here)
        vigil.begin(time.monotonic() + 0.01)
        vigil.begin(end := time.monotonic() + 0.1)
        assert there.recv(1) == b""
        assert time.monotonic() >= end
    here, there = socket.socketpair()
    with here, there:
        vigil = dog.vigil(here)
        vigil.begin(time.monotonic() + FAR)
        vigil.begin(time.monotonic() + 0.01)
        assert there.recv(1) == b""


def test_what_comes_before_the_cut_has_a_moment(dog: Watchdog) -> None:
    """It is done once, in a thread of its own; the cut comes although it is not over, and the connection is late."""
    here, there = socket.socketpair()
    asked, over = list[threading.Thread](), threading.Event()

    def ask() -> None:
        asked.append(threading.current_thread())
        over.wait(60)

    with here, there:
        vigil = dog.vigil(here, ask)
        vigil.begin(end := time.monotonic() + 0.01)
        assert there.recv(1) == b""
        assert time.monotonic() >= end + watchdog._GRACE_S
        assert vigil.late
        over.set()
        assert len(asked) == 1
        assert asked[0] is not dog._thread


def test_who_rests_in_that_moment_is_not_cut(dog: Watchdog) -> None:
    """What came first was enough; the connection is late all the same."""
    here, there = socket.socketpair()
    other, far = socket.socketpair()
    with here, there, other, far:
        vigil, later = dog.vigil(here, lambda: here.sendall(b"x")), dog.vigil(other)
        vigil.begin(time.monotonic() + 0.01)
        assert there.recv(1) == b"x"
        vigil.rest()
        later.begin(time.monotonic() + 0.6)
        assert far.recv(1) == b""
        assert vigil.late
        here.sendall(b"y")
        assert there.recv(1) == b"y"


def test_without_a_thread_for_what_comes_first_it_is_cut_at_once(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever because a machine has no thread left."""
    here, there = socket.socketpair()
    other, far = socket.socketpair()
    with here, there, other, far:
        warm = dog.vigil(other)
        warm.begin(time.monotonic())
        assert far.recv(1) == b""

        def none_left(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", none_left)
        monkeypatch.setattr(watchdog, "_GRACE_S", FAR)
        vigil = dog.vigil(here, lambda: pytest.fail("nobody can do it"))
        vigil.begin(time.monotonic())
        there.settimeout(10)
        assert there.recv(1) == b""
        assert vigil.late


def test_watches_that_were_released_do_not_pile_up(dog: Watchdog) -> None:
    """Ten thousand within one deadline; those that are still out keep theirs."""
    here, there = socket.socketpair()
    mine, far = socket.socketpair()
    with here, there, mine, far:
        out = [dog.start(here, Ends(time.monotonic() + FAR)) for _ in range(100)]
        late = dog.start(mine, Ends(time.monotonic() + 0.3))
        vigil = dog.vigil(mine)
        vigil.begin(time.monotonic() + FAR)
        vigil.rest()
        for _ in range(10_000):
            dog.start(here, Ends(time.monotonic() + FAR)).release()
        assert len(dog._watched) < 1000
        assert far.recv(1) == b""
        for each in (*out, late):
            each.release()


def test_a_watch_begins_again_after_its_entry_was_dropped() -> None:
    """Closing drops what rests, and an exchange that begins after it has its end all the same."""
    dog = Watchdog()
    here, there = socket.socketpair()
    with here, there:
        vigil = dog.vigil(here)
        vigil.begin(time.monotonic() + FAR)
        vigil.rest()
        dog.close()
        assert not dog.runs
        vigil.begin(time.monotonic() + 0.01)
        assert there.recv(1) == b""
