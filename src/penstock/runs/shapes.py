"""Runs as the API and the command line show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.audit.shapes import journal_shape
from penstock.core.clock import MINUTE, SECOND, iso
from penstock.core.formatting import id_or_none, iso_or_none, parsed
from penstock.core.ids import encode
from penstock.core.redact import redact
from penstock.runs.client.runs import RunDetail
from penstock.runs.rows import RunRow, public_ordering_key
from penstock.runs.states import Admission

ADMISSION_NAMES: Mapping[int, str] = {
    Admission.READY: "ready",
    Admission.LATER: "later",
    Admission.PAUSED: "paused",
    Admission.BLOCKED: "blocked",
    Admission.LIMITED: "limited",
}


def run_shape(run: RunRow) -> dict[str, Any]:
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
        "slot": iso(run.occurrence_time),
        "scheduled_time": iso(run.scheduled_time),
        "execution_priority": run.priority,
        "state": run.state,
        "state_updated_at": iso(run.state_at),
        "waits": None if run.admission is None else ADMISSION_NAMES.get(run.admission),
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
        "ordering_key": public_ordering_key(run.ordering_key),
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


def _seconds(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else (end - start) / SECOND


def _max_attempts(run: RunRow) -> int | None:
    """Return the config's maximum attempts; None if the error type decides."""
    retry = parsed(run.retry)
    return retry.get("max_attempts") if isinstance(retry, dict) else None


def _idempotency_key(run: RunRow) -> str | None:
    """Return the unique key of a scheduled attempt; None for a run without a config."""
    if run.config_id is None:
        return None
    return (
        f"{encode('cfg', run.config_id)}:{iso(run.occurrence_time)}:{run.processor}:{run.attempt}"
    )
