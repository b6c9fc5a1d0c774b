"""Records of usage from rows."""

from __future__ import annotations

from typing import Any, cast

from penstock.core.clock import SECOND, Micros
from penstock.core.ids import encode
from penstock.core.records.record import seconds, time, time_or_none
from penstock.usage.budget import period_of, state_of
from penstock.usage.profile import anomaly_text
from penstock.usage.records import Anomaly, Budget, PoolLoad
from penstock.usage.rows import AnomalyRow, BudgetRow
from penstock.usage.scaling import DRAIN_US, WINDOW_US, Load, desired_concurrency, desired_workers


def budget_record(row: BudgetRow, now: Micros) -> Budget:
    """Convert a budget row to its public record."""
    start, end = period_of(row.period, now)
    return Budget(
        scope=cast("Any", row.scope),
        subject=row.name,
        amount=row.amount,
        period=cast("Any", row.period),
        warn_percentage=row.warn_percent,
        is_hard=bool(row.is_hard),
        used=round(row.used, 6),
        used_percentage=round(100 * row.used / row.amount, 3),
        state=cast(
            "Any",
            state_of(
                row.used, row.amount, row.warn_percent, is_stopped=row.stopped_at is not None,
                lifted_until=row.lifted_until, now=now,
            ),
        ),
        period_start=time(start),
        period_end=time(end),
        stopped_at=time_or_none(row.stopped_at),
        runs=row.runs,
    )  # fmt: skip


def pool_record(name: str, load: Load) -> PoolLoad:
    """Return the record of a pool's load."""
    mean = load.mean_us
    return PoolLoad(
        pool=name,
        ready_runs=load.ready,
        running_runs=load.running,
        workers=load.workers,
        concurrency=load.concurrency,
        mean=None if mean is None else seconds(mean),
        runs_per_minute=round(load.runs * 60 * SECOND / WINDOW_US, 3),
        desired_concurrency=desired_concurrency(load),
        desired_workers=desired_workers(load),
        drain=seconds(DRAIN_US),
    )


def anomaly_record(row: AnomalyRow) -> Anomaly:
    """Convert an anomaly row to its public record."""
    unit = 1 if row.measure == "records" else SECOND
    return Anomaly(
        customer=row.customer,
        pipeline=row.pipeline,
        phase=row.phase or None,
        processor=row.processor,
        mode=row.mode or None,
        measure=cast("Any", row.measure),
        run_id=encode("run", row.run_id),
        value=row.value / unit,
        low=None if row.low is None else row.low / unit,
        high=row.high / unit,
        median=row.median / unit,
        samples=row.samples,
        text=anomaly_text(row),
        at=time(row.at),
        ended_at=time_or_none(row.ended_at),
    )
