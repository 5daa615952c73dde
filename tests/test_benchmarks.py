"""What the benchmarks compute from what they have seen; they themselves run in `make bench` only."""

from __future__ import annotations

import pytest

from benchmarks import merchants
from benchmarks.__main__ import main
from benchmarks.figures import Row, compared, latencies, merged, percentile, rate, table
from benchmarks.merchants import Arrival, first_of_each, parse


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7], 0.5, 7),
        ([4, 1, 3, 2], 0.5, 2),
        ([4, 1, 3, 2], 0.99, 4),
        (range(1, 101), 0.9, 90),
        (range(1, 101), 0.99, 99),
        (range(1, 101), 1.0, 100),
        ([5, 6], 0.0, 5),
    ],
)
def test_a_percentile_is_a_value_that_was_seen(values: list[int], share: float, expected: int) -> None:
    """It is the smallest that this share of the values do not exceed."""
    assert percentile(values, share) == expected


def test_latencies_are_told_in_milliseconds_with_how_many_were_late() -> None:
    """More than a second is late."""
    assert latencies([0.01, 1.0, 1.5]) == {"p50 ms": 1000, "p90 ms": 1500, "p99 ms": 1500, "max ms": 1500, "late": 1}
    assert latencies([]) == {}


def test_a_comparison_shows_both_and_the_ratio_of_their_p99() -> None:
    """What is tried comes first, then the same without it."""
    row = compared("fairness", "10 hang", [0.2, 0.4], [0.1, 0.1], "all healthy", missing=3)
    assert row.ratio == pytest.approx(4)
    assert (row.figures["p50 ms"], row.figures["without: p99 ms"], row.figures["missing"]) == (200, 100, 3)


def test_rounds_become_their_medians_and_the_worst_stays_the_worst() -> None:
    """A single late arrival in one of three rounds is not averaged away."""
    rounds = [
        [Row("a", "x", {"p50 ms": p50, "max ms": worst, "late": late, "without: max ms": worst}, ratio, "y")]
        for p50, worst, late, ratio in ((1.0, 9.0, 0, 3.0), (5.0, 2.0, 1, 1.0), (2.0, 4.0, 0, 2.0))
    ]
    expected = {"p50 ms": 2.0, "max ms": 9.0, "late": 1, "without: max ms": 9.0}
    assert merged(rounds) == [Row("a", "x", expected, 2.0, "y")]


def test_a_case_of_one_round_only_is_kept() -> None:
    """Cases stay in the order in which they were first measured."""
    assert [row.case for row in merged([[Row("a", "x")], [Row("a", "x"), Row("a", "y")]])] == ["x", "y"]


@pytest.mark.parametrize(("moments", "expected"), [([], 0), ([5.0], 0), ([10.0, 12.0, 11.0], 1.0)])
def test_a_rate_counts_from_the_first_to_the_last(moments: list[float], expected: float) -> None:
    """Where there is no span there is no rate."""
    assert rate(moments) == expected


def test_the_table_shows_a_ratio_with_what_it_is_against() -> None:
    """A line each, its figures with as many places as are worth reading."""
    rows = [Row("speed", "ours", {"1/s": 1234.5, "ms": 1.2345}, 2.061, "plain"), Row("cost", "one", {"SQL": 3.0})]
    assert table(rows).splitlines() == [
        "speed      ours  1/s 1,234  ms 1.23    2.06 × plain",
        "cost       one   SQL 3",
    ]


def test_a_post_arrived_when_its_first_bytes_came() -> None:
    """A request is logged at its end; a line that is still being written is left out, and one without a request too."""
    log = ["100.500 0.250 20001 evt-1\n", "100.600 0.000 20002 evt-2\n", "400\n", "100.700 0.000 20002 evt"]
    assert parse(log) == [Arrival(100.25, 20001, "evt-1"), Arrival(100.6, 20002, "evt-2")]


def test_of_several_attempts_the_first_arrival_counts() -> None:
    """The log is in the order of the ends, not of the beginnings."""
    assert first_of_each([Arrival(3.0, 1, "a"), Arrival(2.0, 1, "a"), Arrival(5.0, 1, "a"), Arrival(4.0, 1, "b")]) == {
        "a": 2.0,
        "b": 4.0,
    }


def test_without_nginx_one_line_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends at once, says what to install, and starts nothing."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(merchants, "SBIN", "/nowhere")
    assert main(["throughput"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()) == ("", [merchants.MISSING])


def test_an_unknown_arm_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The arms that there are stand beside it."""
    with pytest.raises(SystemExit) as ended:
        main(["fairnes"])
    assert ended.value.code == 2
    assert "there is no fairnes; there are throughput, " in capsys.readouterr().err
