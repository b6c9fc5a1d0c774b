"""Records of external workers from the results of their use cases, and the reverse."""

from __future__ import annotations

from penstock.core.clock import parse_iso
from penstock.core.errors import PenstockError
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import minutes, time, time_or_none
from penstock.core.redact import redact_text
from penstock.runs.external.client.work import (
    Claimed,
    ClaimStatus,
    CompletionResult,
    FailureReport,
    ProgressReport,
    RunOutcome,
)
from penstock.runs.external.records import (
    ChangedInput,
    ClaimedRun,
    EndedRun,
    ItemProblem,
    RunClaim,
    RunCompletion,
    RunFailure,
    RunHeartbeat,
)


def claimed_record(one: Claimed) -> ClaimedRun:
    """Return the record of a claimed run."""
    run = one.run
    gate = parsed(run.gate_context) or {}
    return ClaimedRun(
        run_id=encode("run", run.run_id),
        config_id=id_or_none("cfg", run.config_id),
        customer=run.customer_id,
        pipeline=one.pipeline,
        phase=one.phase,
        processor=one.processor,
        partition=run.partition,
        mode=run.mode,
        scheduled_time=time(run.scheduled_time),
        claim_expiry_time=time(one.claim_expiry_time),
        fencing_token=run.token,
        priority=run.priority,
        attempt=run.attempt,
        max_execution_duration=minutes(run.max_execution_us),
        parameters=parsed(run.parameters),
        correlation_id=run.correlation_id,
        occurrence_time=time(run.occurrence_time),
        flow_id=id_or_none("flow", run.flow_id),
        # A gate that passed without anything to report leaves no context.
        verdict=gate.get("verdict", None if run.flow_id is None else "PROCEED"),
        is_degraded=bool(gate.get("is_degraded")),
        missing=list(gate.get("missing", ())),
        item_key=run.item_key or None,
        item=(run.item_key or None) if run.item is None else parsed(run.item),
        changed=None if one.changed is None else ChangedInput(**one.changed.as_json()),
    )


def held_record(one: ClaimStatus) -> RunClaim:
    """Return the record of a held run."""
    return RunClaim(
        run_id=encode("run", one.run_id),
        state=one.state,
        fencing_token=one.token,
        cancel_requested=one.cancel_requested,
        claim_expiry_time=time(one.claim_expiry_time),
        started_at=time_or_none(one.started_at),
        timeout_at=time_or_none(one.timeout_at),
    )


def ended_record(one: RunOutcome) -> EndedRun:
    """Return the record of an ended run."""
    return EndedRun(
        run_id=encode("run", one.run_id),
        state=one.state,
        status=one.status,
        retry_run_id=id_or_none("run", one.retry_run_id),
        retry_after=time_or_none(one.retry_at),
        is_dead=one.is_dead,
        consecutive_failures=one.consecutive_failures,
    )


def problem_record(error: PenstockError) -> ItemProblem:
    """Return the reason why one item of a batch was rejected."""
    return ItemProblem(status=error.http_status, code=error.code, detail=redact_text(error.message))


def progress_of(report: RunHeartbeat) -> ProgressReport:
    """Return the progress in a heartbeat."""
    loaded = report.records_loaded
    ends = report.estimated_completion_time
    return ProgressReport(
        current_state=report.current_state,
        stage=report.current_stage,
        percent=report.progress_percentage,
        estimated_completion_at=None if ends is None else _time(ends),
        records_extracted=report.records_extracted,
        records_transformed=report.records_transformed,
        records_loaded=report.records_processed if loaded is None else loaded,
        bytes_processed=report.bytes_processed,
    )


def completion_of(report: RunCompletion) -> CompletionResult:
    """Return the result in a completion."""
    return CompletionResult(
        status=report.status,
        result_summary=report.result_summary,
        records_processed=report.records_processed,
        bytes_processed=report.bytes_processed,
        stages=report.stages,
        actions=report.actions,
        artifacts=tuple(report.artifacts),
    )


def failure_of(report: RunFailure) -> FailureReport:
    """Return the failure in a report."""
    return FailureReport(
        error_type=report.error_type,
        error_details=report.error_details,
        should_retry=report.should_retry,
        retry_after_seconds=report.retry_after_seconds,
        artifacts=tuple(report.artifacts),
    )


def _time(text: str) -> int:
    """Parse a time; a plain date means midnight UTC of that day."""
    full = f"{text}T00:00:00Z" if len(text) == 10 else text
    return parse_iso(full, "estimated_completion_time")
