"""Records of the daily checks and the weekly report."""

from __future__ import annotations

from typing import Literal

from penstock.analytics.records import (
    CompletedPhase,
    EndToEnd,
    FailingProcessor,
    FailureReason,
    KindDay,
    KindHealth,
    OptionalMiss,
    OverrideUsage,
    ProblemDependency,
    RunPoint,
    SlowExecution,
    TableDay,
)
from penstock.core.records.record import Record, Time, field

__all__ = ["DailyCheck", "DailyHealth", "ReviewAction", "ReviewedProcessor", "WeeklyReview"]


class DailyCheck(Record):
    """One of the daily checks."""

    check: str
    """Name of the check."""
    verdict: Literal["OK", "FAIL"]
    """Whether the measured value is within its limit."""
    value: float
    """The measured value."""
    limit: float
    """The value from which the check fails."""
    text: str
    """The value in a sentence, with its subject."""
    command: str | None
    """Command that shows the cause; null if the check passed."""


class DailyHealth(Record):
    """The daily checks."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    is_healthy: bool
    """Whether every check passed."""
    checks: list[DailyCheck]
    """The checks, in a fixed order."""


class ReviewedProcessor(Record):
    """Failures and runs of a phase or processor in the week."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    name: str
    """Phase, or phase and processor, whose gate made the checks or whose runs ended."""
    same_day_failures: int
    """Checks that found a same-day dependency missing."""
    historical_failures: int
    """Checks that found a historical dependency missing."""
    optional_failures: int
    """Checks that found an optional dependency missing."""
    overrides: int
    """Executions under an override."""
    runs: int
    """Runs that ended."""
    failures: int
    """Runs that failed, timed out or expired."""


class ReviewAction(Record):
    """A threshold that was exceeded during the week, and the recommended action."""

    kind: Literal["same_day", "historical", "optional", "overrides"]
    """What was counted."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    name: str
    """Phase or processor."""
    count: int
    """How often it happened."""
    threshold: int
    """Count above which action is recommended."""
    text: str
    """Recommended action."""
    command: str
    """First command to run."""


class WeeklyReview(Record):
    """Review of seven days: failures, trends and recommended actions."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    since: Time
    """Start of the first day, UTC."""
    days: int
    """Number of days."""
    pipeline: str | None = field(name="pipeline_template")
    """Pipeline that the review is restricted to; null for all."""
    customer: str | None = field(name="customer_id")
    """Customer that the review is restricted to; null for all."""
    actions: list[ReviewAction]
    """Thresholds that were exceeded."""
    runs: list[RunPoint]
    """Ended runs by day, oldest first."""
    processors: list[ReviewedProcessor]
    """Failures by phase or processor, most historical failures first; at most 50."""
    kinds: list[KindHealth]
    """Failure rate by kind of dependency."""
    kind_days: list[KindDay]
    """Failed checks by kind and day."""
    problems: list[ProblemDependency]
    """Tables that gates found missing, most failures first."""
    optional: list[OptionalMiss]
    """Optional tables by how often they were missing."""
    overrides: list[OverrideUsage]
    """Executions under overrides by processor."""
    reasons: list[FailureReason]
    """Why runs failed and gates lacked data, with the week before."""
    failing: list[FailingProcessor]
    """Processors with failures, most failures first."""
    slow: list[SlowExecution]
    """The slowest runs over five minutes."""
    phases: list[CompletedPhase]
    """Completion and quality by phase."""
    tables: list[TableDay]
    """Completeness by table and day."""
    end_to_end: list[EndToEnd]
    """Minutes from opening to end by pipeline and mode."""
