"""Conversion of worker requests to use-case arguments, and of their results to response bodies.

The other resources are converted by the `shapes` of their subject.
"""

from __future__ import annotations

from typing import Any

from penstock.core.clock import MINUTE, iso
from penstock.core.errors import PenstockError
from penstock.core.formatting import id_or_none, iso_or_none, parsed
from penstock.core.ids import encode
from penstock.core.redact import redact_text
from penstock.runs.external.api_models import CompletionIn, ProgressIn
from penstock.runs.external.client.work import (
    Claimed,
    ClaimStatus,
    CompletionResult,
    ProgressReport,
    RunOutcome,
)
from penstock.server.params import parse_time


def claimed_shape(one: Claimed) -> dict[str, Any]:
    """Return the response body of a claimed run."""
    run = one.run
    return {
        "run_id": encode("run", run.run_id),
        "config_id": id_or_none("cfg", run.config_id),
        "customer_id": run.customer_id,
        "pipeline_template": one.pipeline,
        "phase": one.phase,
        "processor": one.processor,
        "partition": run.partition,
        "mode": run.mode,
        "scheduled_time": iso(run.scheduled_time),
        "claim_expiry_time": iso(one.claim_expiry_time),
        "fencing_token": run.token,
        "execution_priority": run.priority,
        "attempt_number": run.attempt,
        "max_execution_duration_minutes": run.max_execution_us / MINUTE,
        "parameters": parsed(run.parameters),
        "correlation_id": run.correlation_id,
    }


def claim_status_body(one: ClaimStatus) -> dict[str, Any]:
    """Return the response body of a start or heartbeat."""
    return {
        "run_id": encode("run", one.run_id),
        "state": one.state,
        "fencing_token": one.token,
        "cancel_requested": one.cancel_requested,
        "claim_expiry_time": iso(one.claim_expiry_time),
        "execution_start_time": iso_or_none(one.started_at),
        "timeout_at": iso_or_none(one.timeout_at),
    }


def ending_shape(one: RunOutcome) -> dict[str, Any]:
    """Return the response body of an ended run."""
    return {
        "run_id": encode("run", one.run_id),
        "state": one.state,
        "status": one.status,
        "retry_run_id": id_or_none("run", one.retry_run_id),
        "retry_after": iso_or_none(one.retry_at),
        "is_dead": one.is_dead,
        "consecutive_failures": one.consecutive_failures,
    }


def refusal_shape(error: PenstockError) -> dict[str, Any]:
    """Return the reason why one item of a batch was refused."""
    return {
        "status": error.http_status,
        "code": error.code,
        "detail": redact_text(error.message),
    }


def progress_of(body: ProgressIn) -> ProgressReport:
    """Return the progress as a use-case argument."""
    loaded = body.records_loaded if body.records_loaded is not None else body.records_processed
    return ProgressReport(
        current_state=body.current_state,
        stage=body.current_stage,
        percent=body.progress_percentage,
        estimated_completion_at=parse_time(
            body.estimated_completion_time, "estimated_completion_time"
        ),
        records_extracted=body.records_extracted,
        records_transformed=body.records_transformed,
        records_loaded=loaded,
        bytes_processed=body.bytes_processed,
    )


def completion_of(body: CompletionIn) -> CompletionResult:
    """Return the completion as a use-case argument."""
    return CompletionResult(
        status=body.status,
        result_summary=body.result_summary,
        records_processed=body.records_processed,
        bytes_processed=body.bytes_processed,
        stages=body.stages,
    )
