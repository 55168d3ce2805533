"""The judge of the stress test, on logs written by hand."""

from __future__ import annotations

import pytest

from .judge import Row, judge, read


def rows(story: str) -> list[Row]:
    """`1:ticket 2:turn` is a log of two rows, by the lives 1 and 2."""
    steps = (step.split(":") for step in story.split())
    return [Row(stamp, int(life), what) for stamp, (life, what) in enumerate(steps)]


@pytest.mark.parametrize(
    "story",
    [
        "1:ticket 1:turn 1:leave 1:ticket 1:turn 1:leave",
        "1:ticket 2:ticket 1:turn 1:leave 2:turn 2:leave",
        "1:ticket 2:ticket 3:ticket 2:leave 1:turn 1:leave 3:turn",
        "1:ticket 2:ticket 1:kill 2:turn",
        "1:ticket 1:turn 2:ticket 1:kill 2:turn",
        "1:ticket 1:turn 1:leave 2:ticket 1:ticket 2:turn 2:leave 1:turn",
        "1:ticket 1:turn 2:ticket 1:kill 1:leave 2:turn",
        "1:kill 2:ticket 2:turn",
    ],
)
def test_right(story: str) -> None:
    """S1: first come, first served among the living."""
    assert judge(rows(story)).right


@pytest.mark.parametrize(
    ("story", "overtakings", "double_holders"),
    [
        ("1:ticket 2:ticket 2:turn", 1, 0),
        ("1:ticket 2:ticket 3:ticket 3:turn", 2, 0),
        ("1:ticket 1:turn 2:ticket 2:turn", 1, 1),
        ("1:ticket 1:turn 1:leave 2:ticket 1:ticket 1:turn", 1, 0),
        ("1:ticket 2:ticket 3:ticket 2:leave 3:turn", 1, 0),
    ],
)
def test_wrong(story: str, overtakings: int, double_holders: int) -> None:
    """S1: whoever takes its turn before an earlier living ticket has overtaken it."""
    verdict = judge(rows(story))
    assert (verdict.overtakings, verdict.double_holders) == (overtakings, double_holders)
    assert not verdict.right


def test_log_is_sorted_by_time_and_a_cut_row_is_left_out() -> None:
    """S1: processes write in any order, and one may die in the middle of a row."""
    assert read("20 2 turn\n10 1 ticket\n30 1 tur") == [Row(10, 1, "ticket"), Row(20, 2, "turn")]
