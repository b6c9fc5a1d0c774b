"""Count rows of the logs. Pure: the same rows give the same counters, live or folded."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple

from penstock.analytics.histogram import bucket_of
from penstock.analytics.rows import (
    EVERYONE,
    Check,
    CheckCount,
    DurationCount,
    EndedFlow,
    EndedPhase,
    FailureCount,
    FlowCount,
    HistoryRun,
    PhaseCount,
    RunCount,
    SlowRun,
    TableCount,
)
from penstock.core.clock import DAY, MINUTE, Micros, parse_iso
from penstock.core.errors import InvalidInput

QUARTER: Final = 15 * MINUTE
"""Time that one counter of runs covers."""
SLOW_FROM: Final = 5 * MINUTE
"""Duration from which a completed run counts as slow."""
SLOW_KEPT: Final = 20
"""Number of slow runs kept per customer and step: the slowest."""
MESSAGE_CHARS: Final = 160
MESSAGES_MAX: Final = 50
"""Maximum number of distinct failure messages counted per processor and day; the rest are counted
without a message.
"""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_VARIABLE = re.compile(
    r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|\b[0-9a-f]{16,}\b|\b[a-z]+_[0-9a-z]{8,}\b(?=[^a-z]|$)|\d[\d.,:]*\d|\d"
)


class CountedRuns(NamedTuple):
    """The counters of ended runs."""

    runs: list[RunCount]
    failures: list[FailureCount]
    durations: list[DurationCount]
    slow: list[SlowRun]


class CountedChecks(NamedTuple):
    """The counters of dependency checks."""

    checks: list[CheckCount]
    tables: list[TableCount]


class CountedFlows(NamedTuple):
    """The counters of ended flows."""

    flows: list[FlowCount]
    durations: list[DurationCount]


class _Sums:
    """Sums by key; the fields in `latest` keep the largest value instead."""

    def __init__(self, *latest: int) -> None:
        self._found: dict[tuple[Any, ...], list[Any]] = {}
        self._latest = latest

    def add(self, key: tuple[Any, ...], *values: float) -> None:
        found = self._found.get(key)
        if found is None:
            self._found[key] = list(values)
            return
        for n, value in enumerate(values):
            found[n] = max(found[n], value) if n in self._latest else found[n] + value

    def rows(self) -> Iterable[tuple[Any, ...]]:
        return ((*key, *values) for key, values in self._found.items())


def count_runs(rows: Iterable[HistoryRun], only: int | None = None) -> CountedRuns:
    """Count ended runs per customer and in total, or for the customer `only`."""
    runs, failures, durations = _Sums(), _Sums(1, 2), _Sums()
    slow: dict[int, list[SlowRun]] = {}
    for row in rows:
        at, day_at = row.ended_at // QUARTER * QUARTER, row.ended_at // DAY * DAY
        is_completed = row.state == "COMPLETED"
        is_cancelled = row.state == "CANCELLED"
        is_failed = not is_completed and not is_cancelled
        is_slow = row.duration_us > SLOW_FROM
        if is_slow:
            one = SlowRun(row.run_id, row.customer, row.processor, row.ended_at, row.duration_us)
            slow.setdefault(row.customer, []).append(one)
        message = masked(row.error) if is_failed else ""
        for customer in (row.customer, EVERYONE) if only is None else (only,):
            runs.add((customer, at, row.processor), is_completed, is_failed, is_cancelled,
                     row.was_retried, row.is_late, is_slow,
                     row.duration_us if is_completed else 0)  # fmt: skip
            if is_failed:
                key = (customer, day_at, row.processor, row.error_type or row.state, message)
                failures.add(key, 1, row.ended_at, row.run_id)
            if is_completed:
                bucket = bucket_of(row.duration_us)
                durations.add((customer, "run", day_at, row.processor, "", bucket), 1)
    kept = [one for found in slow.values()
            for one in nlargest(SLOW_KEPT, found, key=lambda one: one.duration_us)]  # fmt: skip
    return CountedRuns(
        [RunCount(*row) for row in runs.rows()],
        [FailureCount(*row) for row in failures.rows()],
        [DurationCount(*row) for row in durations.rows()],
        kept,
    )


def count_checks(
    rows: Iterable[Check], before: Mapping[tuple[int, str, str, str], Check]
) -> CountedChecks:
    """Count changed checks in their order.

    before: the last check of each gate and table that was counted earlier. For the completeness of
    a table, only the last check of each gate counts.
    """
    checks, tables = _Sums(4), _Sums()
    last = dict(before)
    for row in rows:
        was = last.get(row.gate_table)
        is_missing = row.status == "MISSING"
        blocked = row.at - was.at if was is not None and was.status == "MISSING" else 0
        for customer in (row.customer, EVERYONE):
            key = (customer, row.at // DAY * DAY, row.pipeline, row.phase, row.processor,
                   row.relation, row.kind)  # fmt: skip
            checks.add(key, 1, is_missing, row.status == "DEGRADED", blocked,
                       row.at if is_missing else 0)  # fmt: skip
            if was is not None:
                replaced = (customer, day_of(was), row.pipeline, row.relation)
                tables.add(replaced, -1, -was.completeness)
            tables.add((customer, day_of(row), row.pipeline, row.relation), 1, row.completeness)
        last[row.gate_table] = row
    return CountedChecks(
        [CheckCount(*row) for row in checks.rows()], [TableCount(*row) for row in tables.rows()]
    )


def count_phases(rows: Iterable[EndedPhase]) -> list[PhaseCount]:
    """Count ended phases per customer and in total."""
    found = _Sums()
    for row in rows:
        for customer in (row.customer, EVERYONE):
            found.add(
                (customer, row.at // DAY * DAY, row.pipeline, row.phase, row.mode),
                1,
                row.completed >= row.expected,
                row.expected,
                row.completed,
                row.quality is not None,
                row.quality or 0.0,
                row.duration_us or 0,
            )
    return [PhaseCount(*row) for row in found.rows()]


def count_flows(rows: Iterable[EndedFlow], only: int | None = None) -> CountedFlows:
    """Count ended flows per customer and in total, or for the customer `only`.

    Cancelled ones have no duration.
    """
    found, durations = _Sums(2), _Sums()
    for row in rows:
        day_at = row.at // DAY * DAY
        for customer in (row.customer, EVERYONE) if only is None else (only,):
            key = (customer, day_at, row.pipeline, row.mode, row.state)
            found.add(key, 1, row.duration_us, row.duration_us)
            if row.state in ("COMPLETE", "DEGRADED"):
                bucket = bucket_of(row.duration_us)
                durations.add((customer, "flow", day_at, row.pipeline, row.mode, bucket), 1)
    return CountedFlows(
        [FlowCount(*row) for row in found.rows()],
        [DurationCount(*row) for row in durations.rows()],
    )


def day_of(row: Check) -> Micros:
    """Return the day of a check's partition; the day of the check if the partition has no date."""
    if _DATE.match(row.partition):
        try:
            return parse_iso(row.partition[:10] + "T00:00:00Z")
        except InvalidInput:  # a text that only looks like a date, such as 2025-13-45
            pass
    return row.at // DAY * DAY


def masked(error: str | None) -> str:
    """Return the first line of an error with numbers and ids masked, so that equal causes match."""
    text = error or ""
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, dict):
            text = str(found.get("message") or "")
    line = next((one for one in text.splitlines() if one.strip()), "").strip()
    return _VARIABLE.sub("#", line)[:MESSAGE_CHARS]


def capped(
    rows: Sequence[FailureCount], known: Iterable[tuple[int, int, int, str, str]]
) -> list[FailureCount]:
    """Drop the messages of failures beyond the number of messages that are counted on a day.

    known: keys of the counters that exist.
    """
    seen = set(known)
    number = Counter(key[:3] for key in seen)
    found = _Sums(1, 2)
    for row in sorted(rows, key=lambda one: -one.failures):
        key: tuple[Any, ...] = row[:5]
        if key not in seen:
            if number[key[:3]] >= MESSAGES_MAX:
                key = (*key[:4], "")
            else:
                number[key[:3]] += 1
                seen.add(key)
        found.add(key, *row[5:])
    return [FailureCount(*row) for row in found.rows()]
