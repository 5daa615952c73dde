"""Telling a burst: how many events of one merchant go before what may wait."""

from __future__ import annotations

from webhooks.accepting.bursts import MOST_AT_ONCE, Bursts


class Clock:
    """A clock that stands until it is moved."""

    now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def test_the_first_twenty_of_a_second_go_first() -> None:
    """Whatever comes after them within it may wait; another second has first ones again."""
    clock = Clock()
    bursts = Bursts(clock)
    assert [bursts.may_wait("acme") for _ in range(25)] == [False] * MOST_AT_ONCE + [True] * 5
    clock.now_s += 0.99
    assert bursts.may_wait("acme")
    clock.now_s += 0.01
    assert [bursts.may_wait("acme") for _ in range(21)] == [False] * MOST_AT_ONCE + [True]


def test_each_merchant_has_its_own() -> None:
    """One that floods makes no other wait."""
    bursts = Bursts(Clock())
    assert [bursts.may_wait("acme") for _ in range(30)][-1]
    assert not bursts.may_wait("bolt")


def test_whoever_sends_slowly_never_waits() -> None:
    """Sixteen a second, for as long as one likes."""
    clock = Clock()
    bursts = Bursts(clock)
    for _ in range(200):
        assert not bursts.may_wait("acme")
        clock.now_s += 1 / 16


def test_it_remembers_a_bounded_number_of_merchants() -> None:
    """A million merchants take no memory, and none of them waits."""
    bursts = Bursts(Clock())
    assert not any(bursts.may_wait(f"m-{number}") for number in range(10_000))
    assert len(bursts._counted) <= 1000
