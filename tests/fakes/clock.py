"""A clock that the test moves; nobody waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class FakeClock:
    """A machine's clocks; what the machine sleeps is over at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.wrong_by = timedelta()
        self._since_start = timedelta()

    @property
    def now(self) -> datetime:
        """The moment, as everybody but a wrong wall clock has it."""
        return START + self._since_start

    def advance(self, wait: timedelta) -> None:
        """Let time pass."""
        self._since_start += wait

    def monotonic(self) -> float:
        """Return seconds that go on steadily."""
        return self._since_start.total_seconds()

    def time(self) -> float:
        """Return the wall clock's seconds since 1970."""
        return (self.now + self.wrong_by).timestamp()

    def sleep(self, seconds: float, /) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.advance(timedelta(seconds=seconds))


class FakeStopping:
    """Told to stop once it has been waited for so often."""

    def __init__(self, clock: FakeClock) -> None:
        self.after: int | None = None
        self.waited: list[float] = []
        self._clock = clock

    def wait(self, timeout: float, /) -> bool:
        """Wait, unless it is told to stop."""
        if self.after is not None and len(self.waited) >= self.after:
            return True
        self.waited.append(timeout)
        self._clock.advance(timedelta(seconds=timeout))
        return False
