"""Rules over recorded history: late and missing tables, silent producers, stale tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.core.clock import DAY, HOUR, Micros, format_duration
from penstock.detection.finding import Finding, command
from penstock.detection.rows import DependencyTrend, FreshnessRow, SilentProducer

LATE_AFTER: Final = HOUR
LATE_WINDOW: Final = DAY
OPTIONAL_WINDOW: Final = 7 * DAY
OPTIONAL_SHARE: Final = 0.20
OPTIONAL_FLOWS_MIN: Final = 5
SILENT_DAYS: Final = 7
SILENT_DAYS_MIN: Final = 5


def late_dependencies(rows: Sequence[DependencyTrend]) -> Iterator[Finding]:
    """Find same-day tables that arrived over an hour late, or not at all, in the last day."""
    for row in rows:
        if not row.late and not row.never:
            continue
        parts = [f"{row.late} late by up to {format_duration(row.worst_us)}"] if row.late else []
        parts += [f"{row.never} never"] if row.never else []
        yield Finding(
            rule="dependency_late",
            key=f"{row.customer_id}:{row.pipeline}:{row.table}",
            severity="HIGH" if row.never else "MEDIUM",
            message=f"{row.table} did not arrive in time for {row.late + row.never} of "
            f"{row.flows} flows of {row.pipeline} ({row.customer_id}) in the last day: "
            f"{', '.join(parts)}",
            fix=command("gate", "history", row.pipeline, row.partition, "--customer",
                        row.customer_id),
            threshold=f"{format_duration(LATE_AFTER)} after the first check",
            since_at=row.since_at,
            customer_key=row.customer_key,
            customer_id=row.customer_id,
            subject_kind="table",
            pipeline=row.pipeline,
            values={
                "table": row.table, "flows": row.flows, "late": row.late, "never": row.never,
                "worst_seconds": row.worst_us // 1_000_000,
            },
        )  # fmt: skip


def missing_optionals(rows: Sequence[DependencyTrend]) -> Iterator[Finding]:
    """Find optional tables that were missing for more than a fifth of the flows of a week."""
    for row in rows:
        if row.flows < OPTIONAL_FLOWS_MIN or row.missing <= OPTIONAL_SHARE * row.flows:
            continue
        share = 100 * row.missing / row.flows
        yield Finding(
            rule="optional_missing",
            key=f"{row.customer_id}:{row.pipeline}:{row.table}",
            severity="MEDIUM",
            message=f"{row.table} (optional) was missing for {row.missing} of {row.flows} flows of "
            f"{row.pipeline} ({row.customer_id}) in the last week ({share:.0f} %)",
            fix=command("gate", "history", row.pipeline, "--customer", row.customer_id),
            threshold=f"{OPTIONAL_SHARE:.0%} of at least {OPTIONAL_FLOWS_MIN} flows",
            since_at=row.since_at,
            customer_key=row.customer_key,
            customer_id=row.customer_id,
            subject_kind="table",
            pipeline=row.pipeline,
            values={"table": row.table, "flows": row.flows, "missing": row.missing},
        )


def silent_producers(rows: Sequence[SilentProducer], now: Micros) -> Iterator[Finding]:
    """Find processors that reported in this hour on most of the last days, but not today."""
    for row in rows:
        silent = format_duration(now - row.last_at)
        yield Finding(
            rule="producer_silent",
            key=f"{row.customer_id}:{row.processor_key}",
            severity="HIGH",
            message=f"{row.pipeline}.{row.phase}.{row.processor} ({row.customer_id}) completed in "
            f"this hour on {row.days} of {SILENT_DAYS} days, but not on the last day; its last "
            f"completion was {silent} ago",
            fix=command("runs", "list", "--processor", row.processor, "--customer",
                        row.customer_id),
            threshold=f"{SILENT_DAYS_MIN} of {SILENT_DAYS} days",
            since_at=row.hour_at + HOUR,
            customer_key=row.customer_key,
            customer_id=row.customer_id,
            subject_kind="processor",
            subject=row.processor_key,
            pipeline=row.pipeline,
            values={"processor": row.processor, "phase": row.phase, "days": row.days},
        )  # fmt: skip


def stale_tables(rows: Sequence[FreshnessRow]) -> Iterator[Finding]:
    """Find tables that are older than their freshness policy allows, or cannot be probed."""
    for row in rows:
        if row.status == "FRESH":
            continue
        limit = format_duration(row.max_age_us)
        if row.status == "ERROR":
            words = f"cannot be probed: {row.error}"
        elif row.newest_at is None:
            words = "has no rows with a time"
        else:
            words = f"is {format_duration(row.checked_at - row.newest_at)} old"
        yield Finding(
            rule="table_stale",
            key=f"{row.pipeline}:{row.table}",
            severity="HIGH",
            message=f"{row.table} {words}; {row.pipeline} declares at most {limit}",
            fix=command("freshness", "list", "--pipeline", row.pipeline),
            threshold=limit,
            since_at=row.newest_at or row.checked_at,
            subject_kind="table",
            pipeline=row.pipeline,
            values={"table": row.table, "status": row.status},
        )


def freshness_status(
    newest_at: Micros | None, error: str | None, max_age: Micros, now: Micros
) -> str:
    """Return FRESH, STALE or ERROR for the result of a probe."""
    if error is not None:
        return "ERROR"
    return "FRESH" if newest_at is not None and now - newest_at <= max_age else "STALE"
