"""Records of analytics: dependencies, trends, series of runs, acknowledgments."""

from __future__ import annotations

from typing import Literal

from penstock.core.records.record import Minutes, Record, Seconds, Time, field

__all__ = [
    "Acknowledgments",
    "CompletedPhase",
    "ConsumerHour",
    "DependencyHealth",
    "EndToEnd",
    "FailingProcessor",
    "FailureReason",
    "GateKindHealth",
    "KindDay",
    "KindHealth",
    "ModeDay",
    "OptionalMiss",
    "OverrideUsage",
    "PhaseQuality",
    "ProblemDependency",
    "RunPoint",
    "RunSeries",
    "SlowExecution",
    "TableDay",
    "Trends",
    "ValidationFailure",
]


class RunPoint(Record):
    """Runs that ended in one period."""

    at: Time
    """Start of the period."""
    completed: int
    """Number of runs that ended as COMPLETED."""
    failed: int
    """Number of runs that ended as FAILED, TIMEOUT or EXPIRED."""
    cancelled: int
    """Number of runs that were cancelled."""
    started_late: int
    """Number of runs that started later than their SLA allows."""


class RunSeries(Record):
    """Ended runs by period, oldest first; periods without runs are included."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    since: Time
    """Start of the first period."""
    bucket: Seconds = field(name="bucket_seconds")
    """Length of a period in seconds."""
    points: list[RunPoint]
    """The periods, oldest first."""


class KindHealth(Record):
    """Checks of dependencies of one kind."""

    kind: str
    """Kind of the dependency: same_day, historical, optional, or as declared."""
    checks: int
    """Number of checks whose outcome differed from the one before."""
    failures: int
    """Number of those that found the table missing."""
    degraded: int
    """Number of those that found the table incomplete but usable."""
    failure_rate: float | None
    """Failures divided by checks, from 0 to 1; null if there are no checks."""
    text: str
    """The figures as a sentence."""


class GateKindHealth(Record):
    """Checks of dependencies of one kind for one gate: a cell of the heat map."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Phase whose gate made the checks."""
    processor: str | None
    """Processor whose gate made the checks; null for the gate of a whole phase."""
    kind: str
    """Kind of the dependency."""
    checks: int
    """Number of checks whose outcome differed from the one before."""
    failures: int
    """Number of those that found a table missing."""
    failure_rate: float | None
    """Failures divided by checks, from 0 to 1; null if there are no checks."""


class KindDay(Record):
    """Failed checks of one kind on one day."""

    day: Time
    """Start of the day, UTC."""
    kind: str
    """Kind of the dependency."""
    failures: int
    """Number of checks that found a table missing."""
    gates: int
    """Number of phases or processors whose gates they are."""


class ProblemDependency(Record):
    """A table that gates found missing."""

    pipeline: str = field(name="pipeline_template")
    """Pipeline that needs it."""
    table: str
    """Name of the table."""
    kind: str
    """Kind of the dependency."""
    failures: int
    """Number of checks that found it missing."""
    processors: list[str]
    """Processors, or phases, whose gates found it missing."""
    blocked: Seconds = field(name="blocked_seconds")
    """Total time in seconds from such a check to the next one that differed."""
    last_failure_at: Time | None
    """Time of the last check that found it missing; null if there was none."""


class OptionalMiss(Record):
    """How often a gate lacked an optional table."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Phase whose gate made the checks."""
    processor: str | None
    """Processor whose gate made the checks; null for the gate of a whole phase."""
    table: str
    """Name of the table."""
    checks: int
    """Number of checks whose outcome differed from the one before."""
    misses: int
    """Number of those that found it missing."""
    miss_rate: float | None
    """Misses divided by checks, from 0 to 1; null if there are no checks."""


class OverrideUsage(Record):
    """Executions of a processor under overrides."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    executions: int
    """Number of executions that used an override."""
    partitions: int
    """Number of different partitions among them."""
    reason: str | None
    """A reason given for one of the overrides; null if none was stored."""
    first_at: Time
    """End of the first of these executions."""
    last_at: Time
    """End of the last of these executions."""


class ConsumerHour(Record):
    """Acknowledgments of a processor or a subscription in one hour."""

    at: Time
    """Start of the hour."""
    kind: Literal["processor", "subscription"]
    """Whether attempts of a processor or deliveries of a subscription are counted."""
    pipeline: str | None = field(name="pipeline_template")
    """Pipeline of the processor; null for a subscription."""
    name: str
    """Name of the processor, as `phase.processor`, or of the subscription."""
    acks: int
    """Attempts that were not retried; deliveries that were acknowledged."""
    nacks: int
    """Attempts that were retried; deliveries that were returned or not acknowledged in time."""


class Acknowledgments(Record):
    """Acks and nacks by processor, subscription and hour, newest hour first."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    since: Time
    """Start of the first hour."""
    hours: list[ConsumerHour]
    """One row for each hour and processor or subscription."""


class DependencyHealth(Record):
    """Health of dependencies over a number of days."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    since: Time
    """Start of the first day, UTC."""
    kinds: list[KindHealth]
    """Failure rate by kind."""
    gates: list[GateKindHealth]
    """Failure rate by phase or processor and kind, for the heat map."""
    days: list[KindDay]
    """Failed checks by kind and day, oldest first."""
    problems: list[ProblemDependency]
    """Tables that gates found missing, most failures first; at most 50."""
    optional: list[OptionalMiss]
    """Optional tables by how often they were missing; at most 50."""
    overrides: list[OverrideUsage]
    """Executions under overrides by processor, most frequent first; at most 50."""


class CompletedPhase(Record):
    """Ended phases of flows."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    ended: int
    """Number of phases that ended."""
    completed: int
    """Number of those in which every expected processor completed."""
    completion_rate: float | None
    """Completed processors divided by expected ones, from 0 to 1; null if none was expected."""
    quality: float | None
    """Average quality, from 0 to 1; null if none was reported."""
    average_duration: Minutes | None = field(name="average_duration_minutes")
    """Average duration in minutes; null if there are no phases."""


class PhaseQuality(Record):
    """Quality of a phase on one day."""

    day: Time
    """Start of the day, UTC."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    quality: float | None
    """Average quality, from 0 to 1; null if none was reported."""
    completion_rate: float | None
    """Completed processors divided by expected ones, from 0 to 1; null if none was expected."""
    ended: int
    """Number of phases that ended."""


class FailureReason(Record):
    """A reason for failures, and its frequency."""

    source: Literal["run", "gate"]
    """Whether runs failed, or gates found data missing."""
    reason: str
    """Error type of the runs; kind of the dependency for gates."""
    count: int
    """Number of failures in the period."""
    count_before: int
    """Number of failures in the preceding period of the same length."""


class FailingProcessor(Record):
    """A processor and its failed runs."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    runs: int
    """Number of runs that ended."""
    failures: int
    """Number of runs that ended as FAILED, TIMEOUT or EXPIRED."""
    failure_rate: float | None
    """Failures divided by runs that were not cancelled, from 0 to 1; null if there were none."""
    failures_before: int
    """Number of failures in the preceding period of the same length."""
    failure_rate_before: float | None
    """Failure rate in that period; null if there are no runs."""


class SlowExecution(Record):
    """A run that took longer than five minutes."""

    run_id: str
    """Id of the run (`run_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns the run."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    ended_at: Time
    """Time at which the run ended."""
    duration: Seconds = field(name="duration_seconds")
    """Duration in seconds."""
    p95: Seconds | None = field(name="p95_seconds")
    """95th percentile of the completed runs of the processor in the period, in seconds, within
    five percent; null if there were no such runs."""


class TableDay(Record):
    """Completeness of a table for the partitions of one day, at the last check of each gate."""

    day: Time
    """Day of the partition, UTC; the day of the check for partitions without a date."""
    pipeline: str = field(name="pipeline_template")
    """Pipeline that needs the table."""
    table: str
    """Name of the table."""
    completeness: float
    """Average completeness in percent."""
    band: Literal["complete", "usable", "low"]
    """`complete` at 100 percent, `usable` from 80, else `low`."""
    gates: int
    """Number of gates that checked it."""


class ModeDay(Record):
    """Flows of one mode that ended on one day."""

    day: Time
    """Start of the day, UTC."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    mode: str
    """Mode of the flows."""
    flows: int
    """Number of flows that ended, without cancelled ones."""
    average: Minutes | None = field(name="average_minutes")
    """Average minutes from opening to end; null if there are no flows."""
    longest: Minutes | None = field(name="longest_minutes")
    """Longest time from opening to end, in minutes; null if there are no flows."""


class EndToEnd(Record):
    """How long flows of one mode took from opening to end."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    mode: str
    """Mode of the flows."""
    flows: int
    """Number of flows that ended, without cancelled ones."""
    completed: int
    """Number of those that ended as COMPLETE or DEGRADED."""
    degraded: int
    """Number of those that ended as DEGRADED."""
    failed: int
    """Number of those that ended as FAILED."""
    p50: Minutes | None = field(name="p50_minutes")
    """Median of the completed ones in minutes, within five percent; null if there were none."""
    p95: Minutes | None = field(name="p95_minutes")
    """95th percentile of the completed ones in minutes; null in the same cases."""
    longest: Minutes | None = field(name="longest_minutes")
    """Longest time in minutes of a flow that was not cancelled; null if there are no flows."""
    days: list[ModeDay]
    """The same by day, oldest first."""


class ValidationFailure(Record):
    """Validation failures of a processor with the same message."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    error_type: str
    """Error type of the runs."""
    message: str
    """First line of the error, with numbers and ids replaced by `#`; empty for rare messages of a
    processor with very many different ones.
    """
    failures: int
    """Number of runs that failed with it."""
    last_at: Time
    """End of the last such run."""
    last_run_id: str
    """Id of a recent run that failed with it (`run_…`)."""


class Trends(Record):
    """Trends over a number of days, compared with the same number of days before."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    since: Time
    """Start of the first day, UTC."""
    before: Time
    """Start of the preceding period."""
    phases: list[CompletedPhase]
    """Completion and quality by phase."""
    quality: list[PhaseQuality]
    """Completion and quality by phase and day, oldest first."""
    reasons: list[FailureReason]
    """Why runs failed and gates did not open, most frequent first; at most 50."""
    processors: list[FailingProcessor]
    """Processors with failures, most failures first; at most 50."""
    slow: list[SlowExecution]
    """The slowest runs over five minutes, slowest first; at most 50."""
    tables: list[TableDay]
    """Completeness by table and day, oldest first."""
    end_to_end: list[EndToEnd]
    """Minutes from opening to end by pipeline and mode."""
