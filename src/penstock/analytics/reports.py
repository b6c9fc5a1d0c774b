"""Figures from counters: dependency health, trends, acknowledgments. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from penstock.analytics.histogram import quantile_of
from penstock.analytics.records import (
    CompletedPhase,
    EndToEnd,
    FailingProcessor,
    FailureReason,
    GateKindHealth,
    KindDay,
    KindHealth,
    ModeDay,
    OptionalMiss,
    PhaseQuality,
    ProblemDependency,
    RunPoint,
    TableDay,
    ValidationFailure,
)
from penstock.analytics.rows import (
    CheckCount,
    DurationCount,
    FailureCount,
    FlowCount,
    PhaseCount,
    ProcessorName,
    TableCount,
)
from penstock.core.clock import Micros
from penstock.core.ids import encode
from penstock.core.records.record import minutes, seconds, time

LIST_MAX: Final = 50
COMPLETE_AT: Final = 100.0
USABLE_AT: Final = 80.0
"""Bounds of the bands of completeness, in percent."""

Names = Mapping[int, str]


def rate(part: float, whole: float) -> float | None:
    """Return a share rounded to four digits; None if the total is 0."""
    return round(part / whole, 4) if whole else None


def is_validation(error_type: str) -> bool:
    """Return whether an error type reports invalid data."""
    return "VALIDATION" in error_type or "SCHEMA" in error_type


def series_points(
    sums: Mapping[Micros, Sequence[int]], since: Micros, until: Micros, bucket: Micros
) -> list[RunPoint]:
    """Return a point for every period, including those without runs."""
    empty = (0, 0, 0, 0)
    return [
        RunPoint(
            at=time(at),
            completed=values[0],
            failed=values[1],
            cancelled=values[2],
            started_late=values[3],
        )
        for at in range(since, until, bucket)
        for values in [sums.get(at, empty)]
    ]


def kinds_of(checks: Iterable[CheckCount]) -> list[KindHealth]:
    """Return the failure rate by kind of dependency."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in checks:
        for n, value in enumerate((row.checks, row.missing, row.degraded)):
            sums[row.kind][n] += value
    return [
        KindHealth(
            kind=kind,
            checks=total,
            failures=missing,
            degraded=degraded,
            failure_rate=rate(missing, total),
            text=f"{missing} of {total} checks of {kind} dependencies found the table missing",
        )
        for kind, (total, missing, degraded) in sorted(sums.items())
    ]


def gates_of(checks: Iterable[CheckCount], pipelines: Names) -> list[GateKindHealth]:
    """Return the failure rate by gate and kind."""
    sums: dict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in checks:
        key = (pipelines.get(row.pipeline, ""), row.phase, row.processor, row.kind)
        sums[key][0] += row.checks
        sums[key][1] += row.missing
    return [
        GateKindHealth(
            pipeline=pipeline,
            phase=phase,
            processor=processor or None,
            kind=kind,
            checks=total,
            failures=missing,
            failure_rate=rate(missing, total),
        )
        for (pipeline, phase, processor, kind), (total, missing) in sorted(sums.items())
    ]


def kind_days_of(checks: Iterable[CheckCount]) -> list[KindDay]:
    """Return failed checks by day and kind."""
    failures: dict[tuple[Micros, str], int] = defaultdict(int)
    gates: dict[tuple[Micros, str], set[tuple[int, str, str]]] = defaultdict(set)
    for row in checks:
        if row.missing:
            failures[row.day_at, row.kind] += row.missing
            gates[row.day_at, row.kind].add((row.pipeline, row.phase, row.processor))
    return [
        KindDay(day=time(day_at), kind=kind, failures=count, gates=len(gates[day_at, kind]))
        for (day_at, kind), count in sorted(failures.items())
    ]


def problems_of(checks: Iterable[CheckCount], pipelines: Names) -> list[ProblemDependency]:
    """Return the tables that gates found missing, most failures first."""
    found: dict[tuple[str, str, str], list[CheckCount]] = defaultdict(list)
    for row in checks:
        found[pipelines.get(row.pipeline, ""), row.relation, row.kind].append(row)
    made = []
    for (pipeline, table, kind), rows in sorted(found.items()):
        failures, last = sum(row.missing for row in rows), max(row.last_missing_at for row in rows)
        if failures:
            made.append(
                ProblemDependency(
                    pipeline=pipeline,
                    table=table,
                    kind=kind,
                    failures=failures,
                    processors=sorted({row.processor or row.phase for row in rows if row.missing}),
                    blocked=seconds(sum(row.blocked_us for row in rows)),
                    last_failure_at=time(last) if last else None,
                )
            )
    return sorted(made, key=lambda one: (-one.failures, -one.blocked))[:LIST_MAX]


def optional_of(checks: Iterable[CheckCount], pipelines: Names) -> list[OptionalMiss]:
    """Return how often gates lacked optional tables, the highest rate first."""
    sums: dict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in checks:
        if row.kind == "optional":
            key = (pipelines.get(row.pipeline, ""), row.phase, row.processor, row.relation)
            sums[key][0] += row.checks
            sums[key][1] += row.missing
    made = [
        OptionalMiss(
            pipeline=pipeline,
            phase=phase,
            processor=processor or None,
            table=table,
            checks=total,
            misses=misses,
            miss_rate=rate(misses, total),
        )
        for (pipeline, phase, processor, table), (total, misses) in sorted(sums.items())
    ]
    return sorted(made, key=lambda one: -(one.miss_rate or 0))[:LIST_MAX]


def phases_of(rows: Iterable[PhaseCount], pipelines: Names) -> list[CompletedPhase]:
    """Return completion and quality by phase."""
    found: dict[tuple[str, str], list[PhaseCount]] = defaultdict(list)
    for row in rows:
        found[pipelines.get(row.pipeline, ""), row.phase].append(row)
    return [
        CompletedPhase(
            pipeline=pipeline,
            phase=phase,
            ended=ended,
            completed=sum(row.completed for row in of_phase),
            completion_rate=_completion(of_phase),
            quality=_quality(of_phase),
            average_duration=(
                minutes(sum(row.duration_us for row in of_phase) // ended) if ended else None
            ),
        )
        for (pipeline, phase), of_phase in sorted(found.items())
        for ended in [sum(row.ended for row in of_phase)]
    ]


def quality_of(rows: Iterable[PhaseCount], pipelines: Names) -> list[PhaseQuality]:
    """Return completion and quality by day and phase."""
    found: dict[tuple[Micros, str, str], list[PhaseCount]] = defaultdict(list)
    for row in rows:
        found[row.day_at, pipelines.get(row.pipeline, ""), row.phase].append(row)
    return [
        PhaseQuality(
            day=time(day_at),
            pipeline=pipeline,
            phase=phase,
            quality=_quality(of_day),
            completion_rate=_completion(of_day),
            ended=sum(row.ended for row in of_day),
        )
        for (day_at, pipeline, phase), of_day in sorted(found.items())
    ]


def _quality(rows: Sequence[PhaseCount]) -> float | None:
    return rate(sum(row.quality for row in rows), sum(row.qualities for row in rows))


def _completion(rows: Sequence[PhaseCount]) -> float | None:
    done = sum(row.completed_processors for row in rows)
    return rate(done, sum(row.expected_processors for row in rows))


def reasons_of(
    failures: Iterable[FailureCount], checks: Iterable[CheckCount], since: Micros
) -> list[FailureReason]:
    """Return why runs failed and gates lacked data, in the period and in the one before it."""
    sums: dict[tuple[Literal["run", "gate"], str], list[int]] = defaultdict(lambda: [0, 0])
    for row in failures:
        sums["run", row.error_type][row.day_at >= since] += row.failures
    for check in checks:
        sums["gate", check.kind][check.day_at >= since] += check.missing
    made = [
        FailureReason(source=source, reason=reason, count=now, count_before=before)
        for (source, reason), (before, now) in sorted(sums.items())
        if now or before
    ]
    return sorted(made, key=lambda one: -one.count)[:LIST_MAX]


def failing_of(
    sums: Mapping[tuple[int, bool], Sequence[int]], names: Mapping[int, ProcessorName]
) -> list[FailingProcessor]:
    """Return processors with failures, most failures first."""
    made = []
    for processor, name in names.items():
        now = sums.get((processor, True), (0, 0, 0))
        before = sums.get((processor, False), (0, 0, 0))
        if now[1]:
            made.append(
                FailingProcessor(
                    pipeline=name.pipeline_name,
                    phase=name.phase,
                    processor=name.name,
                    runs=sum(now[:3]),
                    failures=now[1],
                    failure_rate=rate(now[1], now[0] + now[1]),
                    failures_before=before[1],
                    failure_rate_before=rate(before[1], before[0] + before[1]),
                )
            )
    made.sort(key=lambda one: (-one.failures, one.pipeline, one.phase, one.processor))
    return made[:LIST_MAX]


def tables_of(rows: Iterable[TableCount], pipelines: Names) -> list[TableDay]:
    """Return the completeness of tables by day."""
    sums: dict[tuple[Micros, str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for row in rows:
        key = (row.day_at, pipelines.get(row.pipeline, ""), row.relation)
        sums[key][0] += row.gates
        sums[key][1] += row.completeness
    return [
        TableDay(
            day=time(day_at),
            pipeline=pipeline,
            table=table,
            completeness=share,
            band=band_of(share),
            gates=int(gates),
        )
        for (day_at, pipeline, table), (gates, total) in sorted(sums.items())
        if gates > 0
        for share in [round(total / gates, 1)]
    ]


def band_of(completeness: float) -> Literal["complete", "usable", "low"]:
    """Return the band of a completeness in percent."""
    if completeness >= COMPLETE_AT:
        return "complete"
    return "usable" if completeness >= USABLE_AT else "low"


def end_to_end_of(
    flows: Iterable[FlowCount], durations: Iterable[DurationCount], pipelines: Names
) -> list[EndToEnd]:
    """Return how long flows took, by pipeline and mode; cancelled flows do not count."""
    found: dict[tuple[str, str], list[FlowCount]] = defaultdict(list)
    for row in flows:
        if row.state != "CANCELLED":
            found[pipelines.get(row.pipeline, ""), row.mode].append(row)
    buckets: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for one in durations:
        buckets[pipelines.get(one.subject, ""), one.mode][one.bucket] += one.items
    made = []
    for (pipeline, mode), rows in sorted(found.items()):
        by_state: dict[str, int] = defaultdict(int)
        for row in rows:
            by_state[row.state] += row.flows
        p50, p95 = (quantile_of(buckets[pipeline, mode], share) for share in (0.5, 0.95))
        made.append(
            EndToEnd(
                pipeline=pipeline,
                mode=mode,
                flows=sum(by_state.values()),
                completed=by_state["COMPLETE"] + by_state["DEGRADED"],
                degraded=by_state["DEGRADED"],
                failed=by_state["FAILED"],
                p50=None if p50 is None else minutes(p50),
                p95=None if p95 is None else minutes(p95),
                longest=minutes(max(row.longest_us for row in rows)),
                days=_mode_days(rows, pipeline, mode),
            )
        )
    return made


def _mode_days(rows: Iterable[FlowCount], pipeline: str, mode: str) -> list[ModeDay]:
    found: dict[Micros, list[FlowCount]] = defaultdict(list)
    for row in rows:
        found[row.day_at].append(row)
    return [
        ModeDay(
            day=time(day_at),
            pipeline=pipeline,
            mode=mode,
            flows=count,
            average=minutes(sum(row.duration_us for row in of_day) // count),
            longest=minutes(max(row.longest_us for row in of_day)),
        )
        for day_at, of_day in sorted(found.items())
        for count in [sum(row.flows for row in of_day)]
    ]


def validation_of(
    failures: Iterable[FailureCount], names: Mapping[int, ProcessorName]
) -> list[ValidationFailure]:
    """Return validation failures by processor and message, most frequent first."""
    sums: dict[tuple[int, str, str], list[int]] = {}
    for row in failures:
        if is_validation(row.error_type) and row.processor in names:
            found = sums.setdefault((row.processor, row.error_type, row.message), [0, 0, 0])
            found[0] += row.failures
            found[1] = max(found[1], row.last_at)
            found[2] = max(found[2], row.last_run_id)
    made = [
        ValidationFailure(
            pipeline=names[processor].pipeline_name,
            phase=names[processor].phase,
            processor=names[processor].name,
            error_type=error_type,
            message=message,
            failures=count,
            last_at=time(last_at),
            last_run_id=encode("run", run_id),
        )
        for (processor, error_type, message), (count, last_at, run_id) in sums.items()
    ]
    return sorted(made, key=lambda one: (-one.failures, one.processor, one.message))
