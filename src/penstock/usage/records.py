"""Records of usage: budgets, the load of pools, anomalies."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from penstock.core.records.record import Meta, Record, Seconds, Time, field

__all__ = ["Anomaly", "Budget", "NewBudget", "PoolLoad"]

BudgetScope: TypeAlias = Literal["pipeline", "customer"]
BudgetPeriod: TypeAlias = Literal["day", "month"]
AnomalyMeasure: TypeAlias = Literal["duration", "records", "arrival"]


class NewBudget(Record):
    """The maximum cost of a pipeline or customer in a period."""

    scope: BudgetScope
    """pipeline or customer."""
    subject: Annotated[str, Meta(min_length=1, max_length=200)]
    """Name of the pipeline, or id of the customer."""
    amount: Annotated[float, Meta(gt=0, le=1e15)]
    """Cost that may be used in a period, in the unit of the rates that processors declare."""
    period: BudgetPeriod = "month"
    """day or month, in UTC."""
    warn_percentage: Annotated[float, Meta(ge=1, le=100)] = 80.0
    """Percentage of the amount at which an alert is opened."""
    is_hard: bool = field(name="hard_stop", default=False)
    """Whether runs are held back once the amount is used up, until the next period."""


class Budget(NewBudget):
    """A budget and its use."""

    used: float
    """Cost of the runs that ended in this period."""
    used_percentage: float
    """Percentage of the amount that is used."""
    state: Literal["ok", "warning", "exceeded", "stopped", "lifted"]
    """State of the budget; `stopped` holds runs back, `lifted` allows it to be exceeded."""
    period_start: Time
    """Start of this period."""
    period_end: Time
    """Start of the next period, in which the full amount is available again."""
    stopped_at: Time | None
    """Time since which runs have been held back; null if they are not held back."""
    runs: int
    """Number of runs that ended in this period."""


class PoolLoad(Record):
    """The load of a pool, and the number of workers it needs."""

    pool: str
    """Name of the pool."""
    ready_runs: int
    """Runs that wait for a worker, up to 10,000."""
    running_runs: int
    """Runs that are executed now."""
    workers: int
    """Live workers."""
    concurrency: int
    """Runs that those workers execute at the same time, in total."""
    mean: Seconds | None = field(name="mean_seconds")
    """Mean duration of the runs that ended in the last 15 minutes; null if there were none."""
    runs_per_minute: float
    """Runs that ended per minute, over the last 15 minutes."""
    desired_concurrency: int
    """Runs that must be executed at the same time to keep up, and to drain the queue in
    `drain_seconds`."""
    desired_workers: int
    """Number of workers for that concurrency, with the current concurrency per worker."""
    drain: Seconds = field(name="drain_seconds")
    """Time in which the queue should be drained, in seconds."""


class Anomaly(Record):
    """An execution outside the range of earlier ones."""

    customer: str = field(name="customer_id")
    """Customer of the run."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str | None
    """Phase of the processor; null outside flows."""
    processor: str
    """Name of the processor."""
    mode: str | None
    """Mode of the run; null outside flows."""
    measure: AnomalyMeasure
    """duration (seconds), records, or arrival (seconds from scheduled time to end)."""
    run_id: str
    """Id of the run (`run_…`)."""
    value: float
    """Measured value."""
    low: float | None
    """Lowest plausible value, from earlier executions; null if low values are not checked."""
    high: float
    """Highest plausible value, from earlier executions."""
    median: float
    """Median of the earlier executions."""
    samples: int
    """Number of earlier executions."""
    text: str
    """The anomaly as a sentence."""
    at: Time
    """Time of the execution's end."""
    ended_at: Time | None
    """Time at which a later execution was in range again; null while the newest one is not."""
