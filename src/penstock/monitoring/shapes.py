"""Records as the API and the command line's `--json` show them: public ids, ISO times, plain JSON.

Each thing has one shape, in the API and under --json, so a program that reads one reads both. Field
names are those of the API (`execution_priority`, `claim_expiry_time` …).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.access.store.names import PipelineInfo
from penstock.audit.rows import AlertRow
from penstock.core.clock import MINUTE, SECOND, iso
from penstock.core.formatting import iso_or_none, parsed
from penstock.core.ids import encode
from penstock.core.redact import redact
from penstock.monitoring.store import Overview, ProviderMetrics
from penstock.runs.store.leases import Session


def alert_shape(row: AlertRow) -> dict[str, Any]:
    """Return the JSON form of an alert."""
    kinds = {"config": "cfg", "run": "run", "flow": "flow"}
    kind = kinds.get(row.subject_kind)
    return {
        "alert_id": encode("alert", row.alert_id),
        "rule": row.rule,
        "severity": row.severity,
        "customer_id": row.customer_id,
        "subject_kind": row.subject_kind,
        "subject": encode(kind, row.subject) if kind else str(row.subject),
        "message": row.message,
        "detail": redact(parsed(row.detail)),
        "state": row.state,
        "times": row.times,
        "opened_at": iso(row.opened_at),
        "last_at": iso(row.last_at),
        "closed_at": iso_or_none(row.closed_at),
        "closed_by": row.closed_by,
    }


def session_shape(session: Session) -> dict[str, Any]:
    """Return the JSON form of a live process."""
    return {
        "session_id": encode("ses", session.session_id),
        "kind": session.kind,
        "name": session.name,
        "host": session.host,
        "pid": session.pid,
        "pool": session.pool,
        "slots": session.concurrency,
        "held": session.held,
        "is_draining": session.is_draining,
        "started_at": iso(session.started_at),
        "last_beat_at": iso(session.heartbeat_at),
        "lease_until": iso(session.until_at),
    }


def pipeline_shape(info: PipelineInfo) -> dict[str, Any]:
    """Return the JSON form of a registered pipeline with its current processors."""
    return {
        "pipeline_template": info.name,
        "definition": info.definition,
        "processors": [
            {
                "phase": row.phase,
                "processor": row.name,
                "pool": row.pool,
                "is_entry": row.is_entry,
                "max_execution_duration_minutes": row.max_execution_us / MINUTE,
            }
            for row in info.processors
            if row.is_current
        ],
    }


def overview_shape(seen: Overview, now: int, next_at: int | None) -> dict[str, Any]:
    """Return counts of live runs and of runs ended since midnight UTC.

    `next_at` is the next scheduled time over all customers.
    """
    done = seen.completed_today
    return {
        "as_of": iso(now),
        "next_slot_at": iso_or_none(next_at),
        "pending_runs": seen.pending,
        "ready_runs": seen.ready,
        "later_runs": seen.later,
        "paused_runs": seen.paused,
        "blocked_runs": seen.blocked,
        "claimed_runs": seen.claimed,
        "running_runs": seen.running,
        "oldest_ready_at": iso_or_none(seen.oldest_ready_at),
        "completed_today": done,
        "failed_today": seen.failed_today,
        "cancelled_today": seen.cancelled_today,
        "sla_breaches_today": seen.sla_breaches_today,
        "average_execution_duration_seconds": seen.duration_us_today / done / SECOND
        if done
        else None,
    }


def metrics_shape(
    customer_id: str, start: int, end: int, rows: Sequence[ProviderMetrics]
) -> dict[str, Any]:
    """Return totals of a customer's ended runs in a window, overall and by provider."""

    def sums(provider: str | None, chosen: Sequence[ProviderMetrics]) -> dict[str, Any]:
        total, good = sum(r.runs for r in chosen), sum(r.completed for r in chosen)
        spent, met = sum(r.duration_us for r in chosen), sum(r.sla_met for r in chosen)
        made = {
            "total_runs": total,
            "successful_runs": good,
            "failed_runs": sum(r.failed for r in chosen),
            "average_duration_seconds": spent / good / SECOND if good else None,
            "sla_compliance_percentage": 100 * met / total if total else None,
        }
        return made if provider is None else {"provider": provider, **made}

    return {
        "customer_id": customer_id,
        "start_date": iso(start),
        "end_date": iso(end),
        **sums(None, rows),
        "by_provider": [sums(row.provider, [row]) for row in rows],
    }
