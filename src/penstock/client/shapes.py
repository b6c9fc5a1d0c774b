"""JSON representations of records, with public ids, ISO times and plain JSON.

The API and the command line's `--json` share them, so a program that reads one can read the other.
Field names are those of the API (`execution_priority`, `claim_expiry_time` …).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.client.names import PipelineInfo
from penstock.client.runs import RunDetail
from penstock.core.clock import MINUTE, SECOND, iso
from penstock.core.ids import encode
from penstock.core.model import Config, Run, shown_key
from penstock.core.preview import Fire
from penstock.core.redact import redact
from penstock.core.states import Admission
from penstock.store.admission import Pause
from penstock.store.alerts import AlertRow
from penstock.store.configs import AuditRow
from penstock.store.journal import JournalRow
from penstock.store.leases import Session
from penstock.store.reads import Overview, ProviderMetrics
from penstock.store.schedule import LedgerEntry

WAITS: Mapping[int, str] = {
    Admission.READY: "ready",
    Admission.LATER: "later",
    Admission.PAUSED: "paused",
    Admission.BLOCKED: "blocked",
    Admission.LIMITED: "limited",
}


def run_shape(run: Run) -> dict[str, Any]:
    """Return the JSON form of a run."""
    return {
        "run_id": encode("run", run.run_id),
        "config_id": id_or_none("cfg", run.config_id),
        "customer_id": run.customer_id,
        "pipeline_template": run.pipeline,
        "phase": run.phase,
        "processor": run.processor,
        "flow_id": id_or_none("flow", run.flow_id),
        "partition": run.partition,
        "mode": run.mode,
        "slot": iso(run.slot),
        "scheduled_time": iso(run.scheduled_time),
        "execution_priority": run.priority,
        "state": run.state,
        "state_updated_at": iso(run.state_at),
        "waits": None if run.admission is None else WAITS.get(run.admission),
        "execution_start_time": iso_or_none(run.started_at),
        "execution_end_time": iso_or_none(run.finished_at),
        "execution_duration_seconds": _seconds(run.started_at, run.finished_at),
        "claimed_by": run.claimed_by,
        "claimed_at": iso_or_none(run.claimed_at),
        "claim_expiry_time": iso_or_none(run.claim_until),
        "status": run.status,
        "result_summary": parsed(run.result),
        "error_type": run.error_type,
        "error_details": parsed(run.error_details),
        "records_processed": run.records,
        "attempt_number": run.attempt,
        "max_attempts": _max_attempts(run),
        "parent_run_id": id_or_none("run", run.parent_run_id),
        "root_run_id": id_or_none("run", run.root_run_id),
        "idempotency_key": _idempotency_key(run),
        "sla_met": run.sla_met,
        "sla_breach_minutes": None if run.sla_breach_us is None else run.sla_breach_us / MINUTE,
        "is_dead": run.is_dead,
        "cancel_requested_at": iso_or_none(run.cancel_requested_at),
        "correlation_id": run.correlation_id,
        "ordering_key": shown_key(run.ordering_key),
        "trigger_source": run.trigger_source,
        "parameters": redact(parsed(run.parameters)),
        "created_at": iso(run.created_at),
    }


def detail_shape(detail: RunDetail) -> dict[str, Any]:
    """Return the JSON form of a run with its attempts, its journal and its progress."""
    return {
        "run": run_shape(detail.run),
        "attempts": [run_shape(run) for run in detail.attempts],
        "journal": [journal_shape(row) for row in detail.journal],
        "progress": None if detail.progress is None else progress_shape(detail.progress),
    }


def progress_shape(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of a run's live progress."""
    return {
        "current_state": progress["current_state"],
        "current_stage": progress["stage"],
        "progress_percentage": progress["percent"],
        "worker_id": progress["worker"],
        "execution_pod": progress["pod"],
        "execution_region": progress["region"],
        "last_heartbeat_at": iso_or_none(progress["last_heartbeat_at"]),
        "estimated_completion_time": iso_or_none(progress["estimated_completion_at"]),
        "records_extracted": progress["records_extracted"],
        "records_transformed": progress["records_transformed"],
        "records_loaded": progress["records_loaded"],
        "bytes_processed": progress["bytes_processed"],
    }


def journal_shape(row: JournalRow) -> dict[str, Any]:
    """Return the JSON form of a journal entry."""
    return {
        "at": iso(row.at),
        "action": row.action,
        "actor": row.actor,
        "from_state": row.from_state,
        "to_state": row.to_state,
        "why": row.why,
        "detail": parsed(row.detail),
    }


def config_shape(config: Config) -> dict[str, Any]:
    """Return the JSON form of a config."""
    return {
        "config_id": encode("cfg", config.config_id),
        "customer_id": config.customer_id,
        "pipeline_template": config.pipeline,
        "provider": config.provider,
        "domain": config.domain,
        "schedule_type": config.schedule_type,
        "schedule_cron": config.schedule_cron,
        "schedule_interval_minutes": config.interval_us / MINUTE if config.interval_us else None,
        "timezone": config.timezone,
        "event_topic": config.event_topic,
        "event_filter": config.event_filter,
        "parameters": redact(parsed(config.parameters)),
        "retry_config": parsed(config.retry),
        "priority": config.priority,
        "max_execution_duration_minutes": config.max_execution_us / MINUTE,
        "sla_breach_threshold_minutes": config.sla_us / MINUTE,
        "catch_up": config.catch_up,
        "catch_up_window_minutes": config.catch_up_window_us / MINUTE,
        "overlap": config.overlap,
        "jitter_seconds": config.jitter_us / SECOND,
        "is_active": config.is_active,
        "inactive_reason": config.inactive_reason,
        "is_paused": bool(config.is_paused),
        "version": config.version,
        "next_run_time": iso_or_none(config.next_run_time),
        "last_run_time": iso_or_none(config.last_run_time),
        "last_run_status": config.last_run_status,
        "consecutive_failures": config.consecutive_failures,
        "created_at": iso(config.created_at),
        "created_by": config.created_by,
        "updated_at": iso(config.updated_at),
    }


def fire_shape(fire: Fire) -> dict[str, Any]:
    """Return the JSON form of a future occurrence."""
    return {
        "at": iso(fire.at),
        "local": fire.local,
        "utc_offset": fire.utc_offset,
        "note": fire.note,
    }


def audit_shape(row: AuditRow) -> dict[str, Any]:
    """Return the JSON form of an entry in a customer's audit chain."""
    return {
        "n": row.n,
        "at": iso(row.at),
        "action": row.action,
        "config_id": id_or_none("cfg", row.config_id),
        "changed_by": row.actor,
        "change_reason": row.reason,
        "old_values": redact(parsed(row.old_values)),
        "new_values": redact(parsed(row.new_values)),
        "previous": row.previous,
        "hash": row.hash,
    }


def ledger_shape(entry: LedgerEntry) -> dict[str, Any]:
    """Return the JSON form of occurrences that did not start."""
    return {
        "slot_from": iso(entry.slot_from),
        "slot_to": iso(entry.slot_to),
        "slots": entry.slots,
        "outcome": entry.outcome,
        "at": iso(entry.at),
    }


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


def pause_shape(pause: Pause) -> dict[str, Any]:
    """Return the JSON form of a pause."""
    named = pause.customer_id if pause.scope == "customer" else pause.pipeline
    subject = encode("cfg", pause.subject) if pause.scope == "config" else named
    return {
        "scope": pause.scope,
        "subject": subject,
        "paused_at": iso(pause.paused_at),
        "paused_by": pause.paused_by,
        "reason": pause.reason,
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
        "slots": session.slots,
        "held": session.held,
        "is_draining": session.is_draining,
        "started_at": iso(session.started_at),
        "last_beat_at": iso(session.beat_at),
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


def overview_shape(seen: Overview, now: int, next_slot_at: int | None) -> dict[str, Any]:
    """Return counts of live runs and of runs ended since midnight UTC.

    `next_slot_at` is the next scheduled time over all customers.
    """
    done = seen.completed_today
    return {
        "as_of": iso(now),
        "next_slot_at": iso_or_none(next_slot_at),
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


def id_or_none(kind: str, n: int | None) -> str | None:
    """Encode a public id; None stays None."""
    return None if n is None else encode(kind, n)


def iso_or_none(us: int | None) -> str | None:
    """Format microseconds as an ISO time; None stays None."""
    return None if us is None else iso(us)


def parsed(text: str | None) -> Any:
    """Parse stored JSON; return the text itself if it is not valid JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _seconds(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else (end - start) / SECOND


def _max_attempts(run: Run) -> int | None:
    """Return the config's maximum attempts; None if the error type decides."""
    retry = parsed(run.retry)
    return retry.get("max_attempts") if isinstance(retry, dict) else None


def _idempotency_key(run: Run) -> str | None:
    """Return the unique key of a scheduled attempt; None for a run without a config."""
    if run.config_id is None:
        return None
    return f"{encode('cfg', run.config_id)}:{iso(run.slot)}:{run.processor}:{run.attempt}"
