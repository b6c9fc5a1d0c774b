"""Fold rows of the logs into counters, and read counters with the rows that are not folded yet.

Rows are folded once they are older than any transaction may take, behind an exact horizon for each
log; later rows are counted on read, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from penstock.analytics.fold import (
    QUARTER,
    SLOW_FROM,
    CountedChecks,
    CountedFlows,
    CountedRuns,
    capped,
    count_checks,
    count_flows,
    count_phases,
    count_runs,
)
from penstock.analytics.rows import (
    EVERYONE,
    AckCount,
    Check,
    CheckCount,
    DurationCount,
    EndedFlow,
    EndedPhase,
    FailureCount,
    FlowCount,
    HistoryRun,
    OverrideUse,
    PhaseCount,
    ProcessorName,
    RunCount,
    TableCount,
)
from penstock.core.clock import DAY, HOUR, MINUTE, Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Row, Tx, first, one
from penstock.db.windows import window_read

LAG: Final = 10 * MINUTE
"""Age of a row at which it is folded: longer than any transaction may take."""
FIRST: Final = 90 * DAY
"""How far back existing rows are folded when the counters are introduced."""
PAGE: Final = 20_000
"""Maximum number of rows that one step folds."""
TAIL: Final = 5_000
"""Maximum number of unfolded rows that a report reads."""
COUNTED: Final = 100_000
"""Maximum number of unfolded runs that a report lets the database count."""
ROWS_MAX: Final = 50_000
"""Maximum number of counters that one report reads."""
SERIES_KEPT: Final = 100 * DAY
"""How long quarter-hourly counters and slow runs are kept."""
DAYS_KEPT: Final = 400 * DAY
"""How long daily counters are kept."""
SOURCES: Final = ("runs", "checks", "phases", "flows")

_READS: Final = {
    "checks": "analytics_checks",
    "phases": "analytics_phases",
    "flows": "analytics_flows",
}
_DAILY_PRUNES: Final = (
    "failure_counts_prune",
    "duration_counts_prune",
    "check_counts_prune",
    "table_counts_prune",
    "phase_counts_prune",
    "flow_counts_prune",
)

R = TypeVar("R", bound=tuple[Any, ...])


class FoldStep(NamedTuple):
    """The result of one step of folding a log."""

    rows: int
    window_us: Micros
    """Time that the next step should cover."""
    is_current: bool
    """Whether everything that is old enough is folded."""


def fold(tx: Tx, source: str, window_us: Micros) -> FoldStep:
    """Fold the next rows of a log; a window with too many rows is halved."""
    until = tx.now() - LAG
    name = f"analytics_{source}_to"
    start = {"name": name, "start": until - FIRST}
    after = int(one(tx.rows("analytics_horizon", start))[0])
    if until <= after:
        return FoldStep(0, window_us, is_current=True)
    rows, to, wider = window_read(
        lambda after, to, n: _read(tx, source, after, to, None, n),
        after,
        until,
        window_us=window_us,
        page=PAGE,
    )
    if rows:
        _FOLDS[source](tx, rows, after)
    tx.run("analytics_horizon_set", {"name": name, "value": to})
    return FoldStep(len(rows), wider, is_current=to == until)


def counters_prune(tx: Tx, n: int = 5_000) -> int:
    """Delete old counters, in chunks; return how many."""
    now = tx.now()
    removed = 0
    for name in ("run_counts_prune", "slow_runs_prune"):
        removed += tx.run(name, {"before": now - SERIES_KEPT, "n": n})
    for name in _DAILY_PRUNES:
        removed += tx.run(name, {"before": now - DAYS_KEPT, "n": n})
    return removed


def _read(
    tx: Tx, source: str, after: Micros, until: Micros, customer: CustomerKey | None, n: int
) -> list[Row]:
    params = {"after": after, "until": until, "n": n}
    if source == "runs":
        if customer is None:
            return tx.rows("analytics_runs", params)
        return tx.rows("analytics_runs_customer", {**params, "customer": customer})
    return tx.rows(_READS[source], {**params, "customer": customer})


def _fold_runs(tx: Tx, rows: Sequence[Row], after: Micros) -> None:
    del after
    counted = count_runs(map(HistoryRun._make, rows))
    _add(tx, "run_counts_add", counted.runs)
    _add(tx, "duration_counts_add", counted.durations)
    _add(tx, "slow_runs_add", counted.slow)
    if counted.failures:
        keys = sorted({row[:3] for row in counted.failures})
        known = [tuple(row) for row in tx.rows("failure_counts_known", batch=keys)]
        _add(tx, "failure_counts_add", capped(counted.failures, known))


def _fold_checks(tx: Tx, rows: Sequence[Row], after: Micros) -> None:
    counted = _count_checks(tx, rows, after)
    _add(tx, "check_counts_add", counted.checks)
    _add(tx, "table_counts_add", counted.tables)


def _fold_phases(tx: Tx, rows: Sequence[Row], after: Micros) -> None:
    del after
    _add(tx, "phase_counts_add", count_phases(map(EndedPhase._make, rows)))


def _fold_flows(tx: Tx, rows: Sequence[Row], after: Micros) -> None:
    del after
    counted = count_flows(map(EndedFlow._make, rows))
    _add(tx, "flow_counts_add", counted.flows)
    _add(tx, "duration_counts_add", counted.durations)


_FOLDS: Final[dict[str, Callable[[Tx, Sequence[Row], Micros], None]]] = {
    "runs": _fold_runs,
    "checks": _fold_checks,
    "phases": _fold_phases,
    "flows": _fold_flows,
}


def _add(tx: Tx, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add counters; flags are counted as numbers."""
    if rows:
        plain = [tuple(int(v) if isinstance(v, bool) else v for v in row) for row in rows]
        tx.run(statement, batch=plain)


def _count_checks(tx: Tx, rows: Sequence[Row], after: Micros) -> CountedChecks:
    checks = [Check._make(row) for row in rows]
    flows = sorted({check.flow_id for check in checks})
    before = [
        Check._make(row)
        for row in tx.rows("analytics_checks_before", {"flows": flows, "until": after})
    ]
    return count_checks(checks, {check.gate_table: check for check in before})


class Counters:
    """Counters of one customer or of all since a time, including rows that are not folded yet."""

    def __init__(
        self, tx: Tx, customer: CustomerKey | None, pipeline: PipelineKey | None, since: Micros
    ) -> None:
        self._tx = tx
        self._customer = customer
        self._owner = EVERYONE if customer is None else int(customer)
        self._pipeline = pipeline
        self.since = since
        self._names: dict[int, ProcessorName] = {}

    def back_to(self, since: Micros) -> Counters:
        """Return the counters since an earlier time; unfolded rows are counted once."""
        made = Counters(self._tx, self._customer, self._pipeline, since)
        if self.folded_to("runs") >= self.since:
            made._live_unusual = self._live_unusual
        return made

    def _params(self, **more: Any) -> dict[str, Any]:
        return {
            "customer": self._owner, "pipeline": self._pipeline, "since": self.since, **more
        }  # fmt: skip

    def folded_to(self, source: str) -> Micros:
        """Return the time up to which the rows of a log are folded."""
        row = first(self._tx.rows("counter_get", {"name": f"analytics_{source}_to"}))
        return int(row[0]) if row is not None else self._tx.now() - FIRST

    def _tail(self, source: str) -> tuple[list[Row], Micros]:
        after = max(self.folded_to(source), self.since - 1)
        rows = _read(self._tx, source, after, self._tx.now(), self._customer, TAIL)
        return rows, after

    def _own(self, rows: Iterable[R]) -> list[R]:
        """Return the counters of this customer, and of the pipeline if one was chosen."""
        return [row for row in rows if row[0] == self._owner]

    def _of_pipeline(self, rows: Sequence[R], pipeline_at: int) -> list[R]:
        return [row for row in rows if self._pipeline in (None, row[pipeline_at])]

    @cached_property
    def _live_runs(self) -> CountedRuns:
        return self._count_runs(self._tail("runs")[0])

    @cached_property
    def _live_unusual(self) -> CountedRuns:
        """The failed and slow runs that are not folded yet; others are not in its counters."""
        params = {
            "after": max(self.folded_to("runs"), self.since - 1),
            "until": self._tx.now(),
            "customer": self._customer,
            "slow_us": SLOW_FROM,
            "visited": COUNTED,
            "n": TAIL,
        }
        return self._count_runs(self._tx.rows("analytics_runs_unusual", params))

    def _count_runs(self, rows: Sequence[Row]) -> CountedRuns:
        ended = [HistoryRun._make(row) for row in rows]
        if self._pipeline is not None:
            names = self.names(run.processor for run in ended)
            ended = [
                run
                for run in ended
                if (name := names.get(run.processor)) and name.pipeline == self._pipeline
            ]
        return count_runs(ended, self._owner)

    @cached_property
    def _live_flows(self) -> CountedFlows:
        return count_flows(map(EndedFlow._make, self._tail("flows")[0]), self._owner)

    @cached_property
    def _live_checks(self) -> CountedChecks:
        rows, after = self._tail("checks")
        return _count_checks(self._tx, rows, after) if rows else CountedChecks([], [])

    @cached_property
    def live_run_counts(self) -> list[RunCount]:
        """The counters of runs that are not folded yet; the database counts them."""
        params: dict[str, Any] = {
            "after": max(self.folded_to("runs"), self.since - 1),
            "until": self._tx.now(),
            "pipeline": self._pipeline,
            "quarter_us": QUARTER,
            "slow_us": SLOW_FROM,
            "n": COUNTED,
        }
        if self._customer is None:
            rows = self._tx.rows("run_tail", params)
        else:
            rows = self._tx.rows("run_tail_customer", {**params, "customer": self._customer})
        return [RunCount(self._owner, *map(int, row)) for row in rows]

    def series(self, bucket: Micros) -> dict[Micros, list[int]]:
        """Return completed, failed, cancelled and late runs by the start of their period."""
        params = self._params(bucket=bucket)
        found = {
            int(at): [int(value) for value in values]
            for at, *values in self._tx.rows("run_series_read", params)
        }
        for row in self.live_run_counts:
            sums = found.setdefault(row.at // bucket * bucket, [0, 0, 0, 0])
            for n, value in enumerate((row.completed, row.failed, row.cancelled, row.late)):
                sums[n] += value
        return found

    def by_processor(self, since_before: Micros) -> dict[tuple[int, bool], list[int]]:
        """Return completed, failed, cancelled, retried and slow runs by processor and period.

        The period is either the one before `since` (False) or the one after it (True).
        """
        params = self._params(since_before=since_before)
        found = {
            (int(processor), bool(is_now)): [int(value) for value in values]
            for processor, is_now, *values in self._tx.rows("runs_by_processor_read", params)
        }
        for row in self.live_run_counts:
            key = (row.processor, row.at + QUARTER > self.since)
            sums = found.setdefault(key, [0] * 5)
            for n, value in enumerate(
                (row.completed, row.failed, row.cancelled, row.retried, row.slow)
            ):
                sums[n] += value
        return found

    def run_acks(self) -> list[AckCount]:
        """Return attempts of processors by hour."""
        rows = self._tx.rows("run_acks_read", self._params(n=ROWS_MAX))
        found = {(int(row[0]), int(row[2])): AckCount(int(row[0]), row[1], *map(int, row[2:]))
                 for row in rows}  # fmt: skip
        live = self.live_run_counts
        names = self.names(row.processor for row in live)
        for row in live:
            hour_at = row.at // HOUR * HOUR
            name = names[row.processor].name if row.processor in names else ""
            was = found.get((row.processor, hour_at), AckCount(row.processor, name, hour_at, 0, 0))
            ended = row.completed + row.failed + row.cancelled
            found[row.processor, hour_at] = was._replace(
                acked=was.acked + ended - row.retried, nacked=was.nacked + row.retried
            )
        return list(found.values())

    def delivery_acks(self) -> list[AckCount]:
        """Return deliveries of subscriptions by hour; none if a pipeline was chosen."""
        if self._pipeline is not None:
            return []
        params = {"customer": self._customer, "since": self.since, "n": ROWS_MAX}
        return [
            AckCount(int(row[0]), row[1], *map(int, row[2:]))
            for row in self._tx.rows("delivery_acks_read", params)
        ]

    def failures(self) -> list[FailureCount]:
        """Return the counters of failures."""
        rows = self._counters("failure_counts_read", FailureCount)
        return [*rows, *self._own(self._live_unusual.failures)]

    def checks(self) -> list[CheckCount]:
        """Return the counters of dependency checks."""
        rows = self._counters("check_counts_read", CheckCount)
        return [*rows, *self._of_pipeline(self._own(self._live_checks.checks), 2)]

    def tables(self) -> list[TableCount]:
        """Return the completeness of tables."""
        rows = self._counters("table_counts_read", TableCount)
        return [*rows, *self._of_pipeline(self._own(self._live_checks.tables), 2)]

    def phases(self) -> list[PhaseCount]:
        """Return the counters of ended phases."""
        rows = self._counters("phase_counts_read", PhaseCount)
        live = count_phases(map(EndedPhase._make, self._tail("phases")[0]))
        return [*rows, *self._of_pipeline(self._own(live), 2)]

    def flows(self) -> list[FlowCount]:
        """Return the counters of ended flows."""
        rows = self._counters("flow_counts_read", FlowCount)
        return [*rows, *self._of_pipeline(self._own(self._live_flows.flows), 2)]

    def flow_durations(self) -> list[DurationCount]:
        """Return the histograms of the durations of flows."""
        rows = self._counters("durations_of_flows_read", DurationCount)
        return [*rows, *self._of_pipeline(self._own(self._live_flows.durations), 3)]

    def run_durations(self, processors: Iterable[int]) -> dict[int, dict[int, int]]:
        """Return the histograms of the durations of processors.

        Runs that are not folded yet count only for processors without folded ones.
        """
        wanted = sorted(set(processors))
        found: dict[int, dict[int, int]] = {one: {} for one in wanted}
        if wanted:
            params = {"customer": self._owner, "since": self.since, "processors": wanted}
            for processor, bucket, items in self._tx.rows("durations_of_runs_read", params):
                found[processor][bucket] = int(items)
        new = {one: buckets for one, buckets in found.items() if not buckets}
        for row in self._own(self._live_runs.durations) if new else ():
            if row.subject in new:
                buckets = new[row.subject]
                buckets[row.bucket] = buckets.get(row.bucket, 0) + row.items
        return found

    def slow_runs(self, n: int) -> list[tuple[int, str, int, Micros, Micros]]:
        """Return the slowest folded runs: id, customer, processor, end and duration."""
        params = {"since": self.since, "pipeline": self._pipeline, "n": n}
        if self._customer is None:
            rows = self._tx.rows("slow_runs_read", params)
        else:
            rows = self._tx.rows("slow_runs_read_customer", {**params, "customer": self._customer})
        return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    def live_slow_runs(self) -> list[tuple[int, str, int, Micros, Micros]]:
        """Return slow runs that are not folded yet, in the same form."""
        rows = self._live_unusual.slow
        keys = sorted({row.customer for row in rows})
        found = self._tx.rows("analytics_customers", {"customers": keys}) if keys else []
        ids: dict[int, str] = {row[0]: row[1] for row in found}
        return [
            (row.run_id, ids[row.customer], row.processor, row.ended_at, row.duration_us)
            for row in rows
            if row.customer in ids
        ]

    def overrides(self, n: int) -> list[OverrideUse]:
        """Return executions under an override, by processor."""
        params = {"customer": self._customer, "pipeline": self._pipeline, "since": self.since}
        rows = self._tx.rows("override_uses_read", {**params, "n": n})
        return [OverrideUse._make(row) for row in rows]

    def names(self, processors: Iterable[int]) -> dict[int, ProcessorName]:
        """Return the names of processors by key."""
        missing = sorted(set(processors) - self._names.keys())
        if missing:
            for row in self._tx.rows("analytics_processors", {"processors": missing}):
                self._names[row[0]] = ProcessorName._make(row)
        return self._names

    def pipeline_names(self, pipelines: Iterable[int]) -> dict[int, str]:
        """Return the names of pipelines by key."""
        wanted = sorted(set(pipelines))
        rows = self._tx.rows("analytics_pipelines", {"pipelines": wanted}) if wanted else []
        return {row[0]: row[1] for row in rows}

    def _counters(self, statement: str, kind: type[R]) -> list[R]:
        day = self.since // DAY * DAY
        rows = self._tx.rows(statement, {**self._params(n=ROWS_MAX), "since": day})
        return [kind(*row) for row in rows]
