"""Use cases of analytics: dependency health, trends, series of runs, acknowledgments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from penstock.access.store.names import NameResolver
from penstock.analytics import reports
from penstock.analytics.histogram import quantile_of
from penstock.analytics.records import (
    Acknowledgments,
    ConsumerHour,
    DependencyHealth,
    EndToEnd,
    OverrideUsage,
    RunSeries,
    SlowExecution,
    Trends,
    ValidationFailure,
)
from penstock.analytics.rows import OverrideUse
from penstock.analytics.store import Counters
from penstock.core.clock import DAY, HOUR, MINUTE, Micros, from_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.records.parameters import CustomerFilter, PipelineFilter
from penstock.core.records.record import Meta, Time, seconds, time
from penstock.db.store import Transactions, Tx

__all__ = ["Analytics"]

T = TypeVar("T")

Bucket = Literal["15m", "1h", "1d"]
BUCKETS: Final[dict[str, Micros]] = {"15m": 15 * MINUTE, "1h": HOUR, "1d": DAY}
POINTS_MAX: Final = 1_000
HOURS_MAX: Final = 5_000

Days: TypeAlias = Annotated[
    int, Meta(description="Number of days up to today, UTC.", ge=1, le=90, examples=[7])
]
_BUCKET = Meta(description="Length of a period.")
_SINCE = Meta(description="Start of the series; 24 hours ago when omitted.")
_HOURS = Meta(description="Number of hours up to now.", ge=1, le=168)


class Analytics:
    """Statistics on ended work, read from counters, so that their cost does not grow with the
    number of runs.

    Everything up to ten minutes ago is in counters. Later rows are counted on read, at most 5,000
    of them.
    """

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def dependency_health(
        self, *, pipeline: PipelineFilter = None, customer: CustomerFilter = None, days: Days = 7
    ) -> DependencyHealth:
        """Return how often dependencies were missing: by kind, gate, day and table.

        A check counts when its outcome differs from the one before it, so that waiting for a table
        counts once, however often it is probed.
        """

        def report(tx: Tx, found: Counters) -> DependencyHealth:
            checks = found.checks()
            pipelines = found.pipeline_names(row.pipeline for row in checks)
            return DependencyHealth(
                as_of=time(tx.now()),
                since=time(found.since),
                kinds=reports.kinds_of(checks),
                gates=reports.gates_of(checks, pipelines),
                days=reports.kind_days_of(checks),
                problems=reports.problems_of(checks, pipelines),
                optional=reports.optional_of(checks, pipelines),
                overrides=[override_record(row) for row in found.overrides(reports.LIST_MAX)],
            )

        return self._read(report, pipeline, customer, days)

    def trends(
        self, *, pipeline: PipelineFilter = None, customer: CustomerFilter = None, days: Days = 7
    ) -> Trends:
        """Return trends over a number of days, compared with the same number of days before.

        Completion and quality by phase, reasons for failures, failing processors, slow executions,
        completeness of tables, and minutes from opening to end by mode.
        """

        def report(tx: Tx, found: Counters) -> Trends:
            since = found.since
            before = since - days * DAY
            sums = found.by_processor(before)
            earlier = found.back_to(before)
            checks, failures = earlier.checks(), earlier.failures()
            phases, tables, flows = found.phases(), found.tables(), found.flows()
            keys = {row[2] for rows in (phases, tables, flows) for row in rows}
            names = found.pipeline_names(keys)
            return Trends(
                as_of=time(tx.now()),
                since=time(since),
                before=time(before),
                phases=reports.phases_of(phases, names),
                quality=reports.quality_of(phases, names),
                reasons=reports.reasons_of(failures, checks, since),
                processors=reports.failing_of(sums, found.names(key for key, _ in sums)),
                slow=_slow(found),
                tables=reports.tables_of(tables, names),
                end_to_end=reports.end_to_end_of(flows, found.flow_durations(), names),
            )

        return self._read(report, pipeline, customer, days)

    def run_series(
        self,
        *,
        bucket: Annotated[Bucket, _BUCKET] = "15m",
        since: Annotated[Time | None, _SINCE] = None,
        pipeline: PipelineFilter = None,
        customer: CustomerFilter = None,
    ) -> RunSeries:
        """Return ended runs by period, oldest first, at most 1,000 periods."""
        width = BUCKETS[bucket]

        def body(tx: Tx) -> RunSeries:
            now = tx.now()
            start = now - 96 * width if since is None else from_datetime(since)
            start = start // width * width
            if start > now or (now - start) // width >= POINTS_MAX:
                expected = f"a time within {POINTS_MAX} periods before now"
                raise InvalidInput("since", expected, str(since))
            found = self._counters(tx, pipeline, customer, start)
            return RunSeries(
                as_of=time(now),
                since=time(start),
                bucket=seconds(width),
                points=reports.series_points(found.series(width), start, now + 1, width),
            )

        return self._store.read(body)

    def acknowledgments(
        self,
        *,
        pipeline: PipelineFilter = None,
        customer: CustomerFilter = None,
        hours: Annotated[int, _HOURS] = 24,
    ) -> Acknowledgments:
        """Return acks and nacks by hour, for processors and subscriptions, newest hour first.

        An attempt of a processor that is retried is a nack, any other an ack. A pipeline filter
        excludes subscriptions. At most 5,000 rows.
        """

        def body(tx: Tx) -> Acknowledgments:
            now = tx.now()
            since = now // HOUR * HOUR - (hours - 1) * HOUR
            found = self._counters(tx, pipeline, customer, since)
            attempts, deliveries = found.run_acks(), found.delivery_acks()
            names = found.names(row.subject for row in attempts)
            rows = [
                ConsumerHour(
                    at=time(row.at),
                    kind="processor",
                    pipeline=names[row.subject].pipeline_name,
                    name=f"{names[row.subject].phase}.{names[row.subject].name}",
                    acks=row.acked,
                    nacks=row.nacked,
                )
                for row in attempts
                if row.subject in names
            ] + [
                ConsumerHour(
                    at=time(row.at),
                    kind="subscription",
                    pipeline=None,
                    name=row.name,
                    acks=row.acked,
                    nacks=row.nacked,
                )
                for row in deliveries
            ]
            rows.sort(key=lambda row: (row.kind, row.pipeline or "", row.name))
            rows.sort(key=lambda row: row.at, reverse=True)
            return Acknowledgments(as_of=time(now), since=time(since), hours=rows[:HOURS_MAX])

        return self._store.read(body)

    def validation_failures(
        self, *, pipeline: PipelineFilter = None, customer: CustomerFilter = None, days: Days = 1
    ) -> list[ValidationFailure]:
        """List validation failures by processor and message, most frequent first; at most 50."""

        def report(tx: Tx, found: Counters) -> list[ValidationFailure]:
            del tx
            failures = found.failures()
            names = found.names(row.processor for row in failures)
            return reports.validation_of(failures, names)[: reports.LIST_MAX]

        return self._read(report, pipeline, customer, days)

    def overrides(
        self, *, pipeline: PipelineFilter = None, customer: CustomerFilter = None, days: Days = 7
    ) -> list[OverrideUsage]:
        """List executions under overrides by processor, most frequent first; at most 50."""

        def report(tx: Tx, found: Counters) -> list[OverrideUsage]:
            del tx
            return [override_record(row) for row in found.overrides(reports.LIST_MAX)]

        return self._read(report, pipeline, customer, days)

    def end_to_end(
        self, *, pipeline: PipelineFilter = None, customer: CustomerFilter = None, days: Days = 30
    ) -> list[EndToEnd]:
        """List how long flows took from opening to end, by pipeline and mode."""

        def report(tx: Tx, found: Counters) -> list[EndToEnd]:
            del tx
            flows, durations = found.flows(), found.flow_durations()
            names = found.pipeline_names(row.pipeline for row in flows)
            return reports.end_to_end_of(flows, durations, names)

        return self._read(report, pipeline, customer, days)

    def _read(
        self,
        report: Callable[[Tx, Counters], T],
        pipeline: str | None,
        customer: str | None,
        days: int,
    ) -> T:
        def body(tx: Tx) -> T:
            since = tx.now() // DAY * DAY - (days - 1) * DAY
            return report(tx, self._counters(tx, pipeline, customer, since))

        return self._store.read(body)

    def _counters(
        self, tx: Tx, pipeline: str | None, customer: str | None, since: Micros
    ) -> Counters:
        number = self._names.customer_key(tx, customer)
        info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
        return Counters(tx, number, None if info is None else info.pipeline_key, since)


def override_record(row: OverrideUse) -> OverrideUsage:
    """Return the record of executions under overrides."""
    return OverrideUsage(
        pipeline=row.pipeline,
        phase=row.phase,
        processor=row.processor,
        executions=row.executions,
        partitions=row.partitions,
        reason=row.reason,
        first_at=time(row.first_at),
        last_at=time(row.last_at),
    )


def _slow(found: Counters) -> list[SlowExecution]:
    """Return the slowest runs with the p95 of their processors."""
    rows = [*found.slow_runs(reports.LIST_MAX), *found.live_slow_runs()]
    rows = sorted(rows, key=lambda row: (-row[4], row[0]))[: reports.LIST_MAX]
    names = found.names(row[2] for row in rows)
    histograms = found.run_durations(row[2] for row in rows)
    made = []
    for run_id, customer_id, processor, ended_at, duration in rows:
        if processor in names:
            p95 = quantile_of(histograms[processor], 0.95)
            made.append(
                SlowExecution(
                    run_id=encode("run", run_id),
                    customer=customer_id,
                    pipeline=names[processor].pipeline_name,
                    phase=names[processor].phase,
                    processor=names[processor].name,
                    ended_at=time(ended_at),
                    duration=seconds(duration),
                    p95=None if p95 is None else seconds(p95),
                )
            )
    return made
