"""Records of monitoring from the rows of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from penstock.access.from_rows import settings_record
from penstock.access.store.names import PipelineInfo
from penstock.core.clock import Micros
from penstock.core.ids import encode
from penstock.core.records.record import Seconds, minutes, seconds, time, time_or_none
from penstock.monitoring.customer_health import health_of
from penstock.monitoring.records import (
    CustomerHealth,
    CustomerMetrics,
    Overview,
    ProviderMetrics,
    RegisteredPipeline,
    RegisteredProcessor,
    Session,
)
from penstock.monitoring.store import CustomerState, OverviewRow, ProviderMetricsRow
from penstock.pipelines.shown import definition_shown
from penstock.runs.store.leases import SessionRow


def overview_record(row: OverviewRow, now: Micros, next_at: Micros | None) -> Overview:
    """Return the record of the overview; `next_at` is the next scheduled time of all customers."""
    return Overview(
        as_of=time(now),
        next_occurrence_at=time_or_none(next_at),
        pending_runs=row.pending,
        ready_runs=row.ready,
        later_runs=row.later,
        paused_runs=row.paused,
        blocked_runs=row.blocked,
        claimed_runs=row.claimed,
        running_runs=row.running,
        oldest_ready_at=time_or_none(row.oldest_ready_at),
        completed_today=row.completed_today,
        failed_today=row.failed_today,
        expired_today=row.expired_today,
        cancelled_today=row.cancelled_today,
        sla_breaches_today=row.sla_breaches_today,
        average_duration=_average(row.duration_us_today, row.completed_today),
        blocked_flows=row.blocked_flows,
        waiting_flows=row.waiting_flows,
    )


def metrics_record(
    customer: str, start: Micros, end: Micros, rows: Sequence[ProviderMetricsRow]
) -> CustomerMetrics:
    """Return the statistics of a customer's ended runs, in total and by provider."""
    return CustomerMetrics(
        customer=customer,
        start_date=time(start),
        end_date=time(end),
        by_provider=[ProviderMetrics(provider=row.provider, **_totals([row])) for row in rows],
        **_totals(rows),
    )


def session_record(row: SessionRow) -> Session:
    """Return the record of a live process."""
    return Session(
        session_id=encode("ses", row.session_id),
        kind=row.kind,
        name=row.name,
        host=row.host,
        pid=row.pid,
        pool=row.pool,
        concurrency=row.concurrency,
        held=row.held,
        leaked=row.leaked,
        is_draining=row.is_draining,
        started_at=time(row.started_at),
        heartbeat_at=time(row.heartbeat_at),
        lease_until=time(row.until_at),
    )


def pipeline_record(info: PipelineInfo) -> RegisteredPipeline:
    """Return the record of a registered pipeline with its current processors."""
    return RegisteredPipeline(
        pipeline=info.name,
        definition=definition_shown(info.definition),
        processors=[
            RegisteredProcessor(
                phase=row.phase,
                processor=row.name,
                pool=row.pool,
                is_entry=row.is_entry,
                max_execution_duration=minutes(row.max_execution_us)
                if row.max_execution_us
                else None,
            )
            for row in info.processors
            if row.is_current
        ],
    )


def _totals(rows: Sequence[ProviderMetricsRow]) -> dict[str, Any]:
    total, completed = sum(row.runs for row in rows), sum(row.completed for row in rows)
    counted = sum(row.sla_runs for row in rows)
    kept = sum(row.sla_kept for row in rows)
    return {
        "total_runs": total,
        "successful_runs": completed,
        "failed_runs": sum(row.failed for row in rows),
        "average_duration": _average(sum(row.duration_us for row in rows), completed),
        "sla_runs": counted,
        "sla_breaches": counted - kept,
        "sla_compliance_percentage": 100 * kept / counted if counted else None,
    }


def _average(duration_us: Micros, runs: int) -> Seconds | None:
    return seconds(round(duration_us / runs)) if runs else None


def health_record(state: CustomerState) -> CustomerHealth:
    """Return the record of a customer's health."""
    facts = state.facts
    health, reason = health_of(facts)
    runs, completed, sla_runs, sla_kept = state.week
    return CustomerHealth(
        **structs.asdict(settings_record(state.settings)),
        health=health,
        reason=reason,
        configs=facts.configs,
        configs_active=facts.active,
        next_run_time=time_or_none(facts.next_run_time),
        outcomes=state.outcomes,
        runs_today=state.today,
        runs_7d=runs,
        success_7d=completed / runs if runs else None,
        sla_7d=sla_kept / sla_runs if sla_runs else None,
        dead_letters=facts.dead_letters,
        running=state.running,
    )
