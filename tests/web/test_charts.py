"""Charts: positions stay within their box, findings and numbers match what is drawn."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.web.charts import (
    Count,
    Timing,
    anchored,
    columns,
    dots,
    median,
    nice_ceiling,
    nice_duration,
    spark,
    steps,
)

COUNTS = st.lists(
    st.builds(Count, label=st.just("07:00Z"), up=st.integers(0, 10**7), down=st.integers(0, 10**5)),
    max_size=96,
)


@given(COUNTS)
def test_columns_stay_in_their_box(counts: list[Count]) -> None:
    made = columns(counts, title="t", finding="f", note="n")
    for box in made.boxes:
        assert 0 <= box.x <= 100
        assert box.x + box.width <= 100.001
        assert 0 <= box.y <= 100
        assert box.y + box.height <= 100.001
    assert len(made.table.rows) == len(counts)
    assert sum(box.css == "soft" for box in made.boxes) == sum(one.up > 0 for one in counts)


@pytest.mark.parametrize(("most", "labels"), [(0, ["1", "0"]), (3, ["4", "2", "0"])])
def test_an_axis_has_whole_numbers_and_names_its_end(most: int, labels: list[str]) -> None:
    made = columns([Count(label="07:00Z", up=most)], title="t", finding="f", note="n", end="08:00Z")
    assert [label for _, label, _ in made.y_labels] == labels
    assert made.x_labels[-1] == "08:00Z"


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_sparks_stay_in_their_box(values: list[float]) -> None:
    for point in spark(values).split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= 56
        assert 0 <= y <= 16


@given(st.lists(st.floats(0, 1e6), max_size=40), st.floats(0, 1e6))
def test_steps_stay_in_their_box(values: list[float], top: float) -> None:
    """A line starts where its first value does and ends at the right edge, never outside."""
    points = [(100 * n / len(values), value) for n, value in enumerate(values)]
    drawn = [tuple(map(float, point.split(","))) for point in steps(points, top).split()]
    assert len(drawn) == (2 * len(values) if top > 0 else 0)
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in drawn)
    if drawn:
        assert (drawn[0][0], drawn[-1][0]) == (0, 100)
        assert [x for x, _ in drawn] == sorted(x for x, _ in drawn)


@given(st.floats(0, 1e9))
def test_a_ceiling_is_at_or_above_its_value(value: float) -> None:
    assert nice_ceiling(value) >= value


@given(st.timedeltas(timedelta(0), timedelta(days=3_000)))
def test_a_round_duration_is_at_or_above_its_value(value: timedelta) -> None:
    assert nice_duration(value) >= value


def test_dots_say_what_they_show() -> None:
    hours = [1, 2, 7]
    marks = ["ok", "deg", "miss"]
    timings = [
        Timing(partition=f"2025-12-{day:02}", took=timedelta(hours=took), outcome=mark)
        for day, took, mark in zip((1, 2, 3), hours, marks, strict=True)
    ]
    made = dots(timings, title="overnight", slo=timedelta(hours=6), note="", foot="")
    assert "1 in time, 1 degraded, 1 missed" in made.finding
    assert "service level of 6 h" in made.finding
    assert "end to end of 3 flows" in made.finding
    alone = dots(timings[:1], title="overnight", slo=None, note="", foot="")
    assert "end to end of 1 flow." in alone.finding
    assert made.slo is not None
    assert made.dots[2].y < made.slo[0] < made.dots[1].y  # above the line is later
    assert made.table.rows[0] == ("2025-12-03", "7 h", "missed")


def test_a_chart_without_data_is_drawn() -> None:
    assert columns([], title="t", finding="f", note="n").boxes == []
    assert dots([], title="t", slo=None, note="", foot="").dots == []
    assert median([]) == timedelta(0)
    assert spark([3.0]) == ""
    assert steps([], 4.0) == ""


@pytest.mark.parametrize(("x", "expected"), [(0, "start"), (50, "middle"), (99, "end")])
def test_texts_are_anchored_inside(x: float, expected: str) -> None:
    assert anchored(x) == expected
