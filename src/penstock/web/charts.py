"""Charts as SVG from the server: pure functions from numbers to positions in percent.

Each chart has a summary (its label for screen readers) and a table of its numbers. Widths and
heights are attributes, never styles, because the content policy forbids inline styles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final

from penstock.web.parts import Button
from penstock.web.words import duration, number, plural

SPARK_WIDTH: Final = 56.0
SPARK_HEIGHT: Final = 16.0
FALL: Final = 76.0
"""Share of a column chart's height, in percent, above its base line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """The numbers of a chart."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle; its position and size are in percent."""

    x: float
    width: float
    y: float
    height: float
    css: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsPanel:
    """Counts by time: one kind above the line, another below it on its own scale."""

    kind: ClassVar[str] = "columns"
    title: str
    finding: str
    boxes: Sequence[Box]
    y_labels: Sequence[tuple[float, str, str]]
    """Position in percent, text and style of each label."""
    x_labels: Sequence[str]
    table: DataTable
    note: str = ""
    bad_note: str = ""
    actions: Sequence[Button] = ()
    foot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A bucket of a column chart."""

    label: str
    up: int
    down: int = 0


def columns(
    counts: Sequence[Count],
    *,
    title: str,
    finding: str,
    note: str,
    ticks: int = 4,
    end: str = "now",
) -> ColumnsPanel:
    """Return a column chart of buckets; `down` is drawn below the line on its own scale.

    end: label of the end of the time axis.
    """
    top = nice_ceiling(max((one.up for one in counts), default=0))
    bottom = max((one.down for one in counts), default=0)
    step = 100 / max(1, len(counts))
    boxes = []
    for index, one in enumerate(counts):
        x, width = step * index + step * 0.12, step * 0.76
        label = f"{one.label}: {number(one.up)}" + (f", {number(one.down)} failed" * bool(one.down))
        if one.up:
            height = max(0.8, FALL * one.up / top)
            boxes.append(
                Box(x=x, width=width, y=FALL - height, height=height, css="soft", label=label)
            )
        if one.down:
            height = max(1.5, (100 - FALL - 3) * one.down / bottom)
            boxes.append(Box(x=x, width=width, y=FALL + 3, height=height, css="fail", label=label))
    y_labels = [(0.0, number(top), ""), (FALL, "0", "")]
    if top % 2 == 0:
        y_labels.insert(1, (FALL / 2, number(top // 2), ""))
    if bottom:
        y_labels.append((100.0, number(bottom), "bad"))
    shown = [counts[round(n * (len(counts) - 1) / ticks)].label for n in range(ticks) if counts] + [
        end
    ]
    return ColumnsPanel(
        title=title,
        finding=finding,
        boxes=boxes,
        y_labels=y_labels,
        x_labels=shown if counts else (),
        note=note,
        bad_note="failed below" if bottom else "",
        table=DataTable(
            columns=("from", "ended well", "failed"),
            rows=[(one.label, number(one.up), number(one.down)) for one in counts],
        ),
    )


def nice_ceiling(value: float) -> int:
    """Return a round number at or above a value: 1, 2, 4, 5, 8 or 10 times a power of ten."""
    if value <= 4:
        return max(1, math.ceil(value)) if value != 3 else 4
    size = 10 ** math.floor(math.log10(value))
    return next(int(size * n) for n in (1, 2, 4, 5, 8, 10) if size * n >= value)


def spark(values: Sequence[float]) -> str:
    """Return the points of a sparkline, with zero at the bottom; empty for fewer than 2 values."""
    if len(values) < 2:
        return ""
    top = max(max(values), 1e-9)
    step = SPARK_WIDTH / (len(values) - 1)
    inner = SPARK_HEIGHT - 3
    return " ".join(
        f"{step * index:.1f},{SPARK_HEIGHT - 1.5 - inner * max(0.0, value) / top:.1f}"
        for index, value in enumerate(values)
    )


def steps(points: Sequence[tuple[float, float]], top: float) -> str:
    """Return the points of a step line in a box of 100 × 100, zero at the bottom.

    points: position in percent from which each value holds, in order; the last one holds to 100.
    """
    if not points or top <= 0:
        return ""
    ends = [x for x, _ in points[1:]] + [100.0]
    return " ".join(
        f"{x:.2f},{y:.2f} {end:.2f},{y:.2f}"
        for (x, value), end in zip(points, ends, strict=True)
        for y in (100 - 100 * min(max(0.0, value), top) / top,)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A point of a chart: positions in percent, and its mark (ok, deg or miss)."""

    x: float
    y: float
    mark: str
    label: str
    href: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DotsPanel:
    """Durations by day against a service level."""

    kind: ClassVar[str] = "dots"
    title: str
    note: str
    finding: str
    dots: Sequence[Dot]
    line: str
    """Points of the median line, in a box of 100 × 100."""
    slo: tuple[float, str] | None
    """Position and text of the service level."""
    y_labels: Sequence[str]
    x_labels: Sequence[str]
    table: DataTable
    foot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The duration of one partition."""

    partition: str
    took: timedelta
    outcome: str
    """ok, deg or miss."""
    href: str | None = None


MARK_WORDS: Final = {"ok": "in time", "deg": "degraded", "miss": "missed"}


def dots(
    timings: Sequence[Timing], *, title: str, slo: timedelta | None, note: str, foot: str
) -> DotsPanel:
    """Return a chart of durations, oldest first, with the median of seven and the service level."""
    longest = max((one.took for one in timings), default=timedelta(0))
    most = max(longest, (slo or timedelta(0)) * 1.33, timedelta(minutes=1))
    top = nice_duration(most)
    count = max(1, len(timings))

    def x(index: int) -> float:
        return (index + 0.5) * 100 / count

    def y(value: timedelta) -> float:
        return max(0.0, 100 - 100 * (value / top))

    middle = [median([one.took for one in timings[max(0, n - 6) : n + 1]]) for n in range(count)]
    level = "" if slo is None else f" against a service level of {duration(slo)}"
    flows = plural(len(timings), "flow")
    found = {mark: sum(1 for one in timings if one.outcome == mark) for mark in MARK_WORDS}
    phrase = ", ".join(f"{found[mark]} {word}" for mark, word in MARK_WORDS.items() if found[mark])
    shown = sorted({round(n * (count - 1) / 3) for n in range(4)})
    return DotsPanel(
        title=title,
        note=note,
        finding=f"{title}: end to end of {flows}{level}. {phrase or 'None'}.",
        dots=[
            Dot(
                x=x(n),
                y=y(one.took),
                mark=one.outcome,
                label=f"{one.partition}: {duration(one.took)}, {MARK_WORDS[one.outcome]}",
                href=one.href,
            )
            for n, one in enumerate(timings)
        ],
        line=" ".join(f"{x(n):.2f},{y(one):.2f}" for n, one in enumerate(middle) if timings),
        slo=None if slo is None else (y(slo), f"SLO {duration(slo)}"),
        y_labels=(duration(top), duration(top / 2), "0"),
        x_labels=[timings[n].partition[-5:] for n in shown] if timings else (),
        foot=foot,
        table=DataTable(
            columns=("partition", "end to end", "outcome"),
            rows=[
                (one.partition, duration(one.took), MARK_WORDS[one.outcome])
                for one in reversed(timings)
            ],
        ),
    )


def nice_duration(value: timedelta) -> timedelta:
    """Return a round duration at or above a value."""
    seconds = value.total_seconds()
    steps = (60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 28_800, 43_200,
             57_600, 86_400)  # fmt: skip
    found = next((step for step in steps if step >= seconds), None)
    if found is not None:
        return timedelta(seconds=found)
    return timedelta(days=nice_ceiling(seconds / 86_400))


def median(values: Sequence[timedelta]) -> timedelta:
    """Return the lower median; zero if there are no values."""
    return sorted(values)[(len(values) - 1) // 2] if values else timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """A cell of a heat map: `band` is a (best), b, c (worst) or z (no data)."""

    band: str
    text: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A row of a heat map."""

    name: str
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatPanel:
    """A heat map: rows by time or kind."""

    kind: ClassVar[str] = "heat"
    title: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[HeatRow]
    legend: Sequence[tuple[str, str]]
    """Band and label of each."""
    note: str = ""
    every: int = 1
    """Only every n-th column is named."""
    is_wide: bool = False
    """Whether columns are labelled with words instead of days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskMark:
    """A time on the line of a forecast."""

    x: float
    text: str
    css: str
    anchor: str = "middle"
    is_above: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskPanel:
    """A forecast: the elapsed time, the probable end, and the service level."""

    kind: ClassVar[str] = "risk"
    title: str
    finding: str
    text: str
    note: str = ""
    now: float | None = None
    likely: tuple[float, float] | None = None
    slo: float | None = None
    marks: Sequence[RiskMark] = ()


def anchored(x: float) -> str:
    """Return how a text at a position is anchored so that it stays within its chart."""
    return "start" if x < 12 else "end" if x > 88 else "middle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A span of time: position and width in percent."""

    left: float
    width: float
    css: str
    label: str


def stacked(parts: Sequence[tuple[str, int, str]], least: float = 0.6) -> list[Bar]:
    """Return counts (style, count, word) as segments of one bar; none is too narrow to be seen.

    least: width of the narrowest segment in percent; the widest one is reduced to make up for it.
    """
    counts = [part for part in parts if part[1] > 0]
    total = sum(count for _, count, _ in counts)
    if not total:
        return []
    widths = [max(least, 100 * count / total) for _, count, _ in counts]
    widths[widths.index(max(widths))] -= sum(widths) - 100
    made, left = [], 0.0
    for (css, count, word), width in zip(counts, widths, strict=True):
        made.append(Bar(left=left, width=width, css=css, label=f"{number(count)} {word}"))
        left += width
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """The spans of one phase or run."""

    name: str
    state: str
    word: str
    bars: Sequence[Bar]
    is_part: bool = False
    href: str | None = None
    note: str = ""
    gates: Sequence[tuple[float, str, str]] = ()
    """Position, style and label of the decisions of its gate."""
    ticks: Sequence[float] = ()
    """Positions of the decisions while it waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePanel:
    """A timeline with one row for each phase and run."""

    kind: ClassVar[str] = "lanes"
    title: str
    caption: str
    ticks: Sequence[tuple[float, str]]
    rows: Sequence[TimelineRow]
    now: float | None = None
    now_text: str = ""
    is_plain: bool = False
    """Whether the legend of gates is omitted."""
    slo: tuple[float, str] | None = None
    """Position and text of the service level."""
