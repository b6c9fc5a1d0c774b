"""Records of runs from the rows of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.core.clock import iso
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import Seconds, minutes, seconds, time, time_or_none
from penstock.core.redact import redact
from penstock.core.retry import ErrorType
from penstock.pipelines.declare.endpoint import shown_url
from penstock.runs.action_records import Artifact, RunAction, RunCheckpoint
from penstock.runs.attempt_result import error_class
from penstock.runs.records import (
    LogEntry,
    Run,
    RunCounts,
    RunEndpoint,
    RunLogs,
    RunProgress,
    SimilarRuns,
    Waits,
)
from penstock.runs.rows import Progress, RunRow, public_ordering_key
from penstock.runs.states import Admission, RunState
from penstock.runs.store.actions import KeptAction, KeptArtifact, KeptState
from penstock.runs.store.lists.counts import RunTally
from penstock.runs.store.logs import LogEntryRow
from penstock.runs.store.similar import Similar

ACCEPTED: Final = 202
ADMISSION_NAMES: Mapping[int, Waits] = {
    Admission.READY: "ready",
    Admission.LATER: "later",
    Admission.PAUSED: "paused",
    Admission.BLOCKED: "blocked",
    Admission.LIMITED: "limited",
    Admission.GATED: "gated",
    Admission.SUSPENDED: "suspended",
}
WAITING: Final = tuple(range(Admission.BLOCKED, Admission.SUSPENDED + 1))
"""Marks of pending runs that wait for another run, a limit, a gate or a flow."""
_SUBJECTS: Mapping[str, str] = {"submit": "run", "trigger": "flow"}


def run_record(row: RunRow) -> Run:
    """Convert a run row, live or ended, to its public record."""
    started, finished, limit = row.started_at, row.finished_at, row.max_execution_us
    is_timed = started is not None and limit is not None
    return Run(
        run_id=encode("run", row.run_id),
        config_id=id_or_none("cfg", row.config_id),
        customer=row.customer_id,
        pipeline=row.pipeline,
        phase=row.phase,
        processor=row.processor,
        item_key=row.item_key or None,
        item=(row.item_key or None) if row.item is None else parsed(row.item),
        flow_id=id_or_none("flow", row.flow_id),
        partition=row.partition,
        mode=row.mode,
        occurrence_time=time(row.occurrence_time),
        scheduled_time=time(row.scheduled_time),
        priority=row.priority,
        state=RunState(row.state),
        state_updated_at=time(row.state_at),
        waits=None if row.admission is None else ADMISSION_NAMES.get(row.admission),
        started_at=time_or_none(started),
        finished_at=time_or_none(finished),
        duration=None if started is None or finished is None else seconds(finished - started),
        max_duration=None if limit is None else minutes(limit),
        expires_at=time_or_none(row.expires_at),
        timeout_at=time((started or 0) + (limit or 0)) if is_timed else None,
        claimed_by=row.claimed_by,
        claimed_at=time_or_none(row.claimed_at),
        claim_expires_at=time_or_none(row.claim_until),
        fencing_token=row.token,
        lapsed_claims=row.lapses,
        status=row.status,
        result=parsed(row.result),
        error_type=row.error_type,
        error_class=error_class(parsed(row.error_details)),
        error_details=parsed(row.error_details),
        records=row.records,
        bytes_processed=row.bytes_processed,
        stages=_stages(row.stages),
        estimated_cost=row.cost,
        attempt=row.attempt,
        max_attempts=_max_attempts(row),
        was_retried=bool(row.was_retried),
        is_stale=row.error_type == ErrorType.STALE_EXECUTION,
        parent_run_id=id_or_none("run", row.parent_run_id),
        root_run_id=id_or_none("run", row.root_run_id),
        idempotency_key=_idempotency_key(row),
        is_sla_met=None if row.sla_met is None else bool(row.sla_met),
        sla_breach=None if row.sla_breach_us is None else minutes(row.sla_breach_us),
        is_dead=bool(row.is_dead),
        cancel_requested_at=time_or_none(row.cancel_requested_at),
        cancel_requested_by=row.cancel_requested_by,
        cancel_reason=row.cancel_reason,
        correlation_id=row.correlation_id,
        ordering_key=public_ordering_key(row.ordering_key),
        trigger_source=row.trigger_source,
        trigger_message_id=row.trigger_message_id,
        parameters=redact(parsed(row.parameters)),
        created_at=time(row.created_at),
    )


def progress_record(progress: Progress, heartbeat_at: int | None) -> RunProgress:
    """Return the record of a run's live progress."""
    return RunProgress(
        current_state=progress.current_state,
        stage=progress.stage,
        percent=progress.percent,
        worker=progress.worker,
        pod=progress.pod,
        region=progress.region,
        last_heartbeat_at=time_or_none(heartbeat_at),
        estimated_completion_at=time_or_none(progress.estimated_completion_at),
        records_extracted=progress.records_extracted,
        records_transformed=progress.records_transformed,
        records_loaded=progress.records_loaded,
        bytes_processed=progress.bytes_processed,
    )


def endpoint_record(
    url: str | None, row: RunRow, attempts: Sequence[RunRow], progress: object
) -> RunEndpoint | None:
    """Return the record of a run's endpoint; only an accepted run has `progress`."""
    if url is None:
        return None
    status = ACCEPTED if progress is not None else None
    for one in (row, *reversed(attempts)):
        details = parsed(one.error_details)
        if status is None and isinstance(details, dict):
            status = details.get("http_status")
    return RunEndpoint(url=shown_url(url), last_status=status)


def similar_record(found: Similar | None) -> SimilarRuns | None:
    """Return the record of dead runs that failed the same way."""
    if found is None:
        return None
    return SimilarRuns(
        fingerprint=found.fingerprint,
        runs=found.runs,
        customers=found.customers,
        first_at=time(found.first_at),
    )


def logs_record(run_id: int, entries: Sequence[LogEntryRow]) -> RunLogs:
    """Return the record of a run's log entries."""
    return RunLogs(
        run_id=encode("run", run_id),
        entries=[
            LogEntry(at=time(one.at), level=one.level, logger=one.logger, message=one.message)
            for one in entries
        ],
    )


def action_record(row: KeptAction) -> RunAction:
    """Return the record of an action that was performed."""
    made = row.subject
    shown = str(made) if row.kind == "publish" else id_or_none(_SUBJECTS[row.kind], made)
    return RunAction(
        kind=row.kind,
        target=row.target,
        partition=row.partition,
        subject=None if made is None else shown,
        key=row.action_key,
        is_repeat=row.is_repeat,
        at=time(row.at),
    )


def artifact_record(row: KeptArtifact) -> Artifact:
    """Convert an artifact row to its public record."""
    return Artifact(
        name=row.name,
        uri=row.uri,
        size=row.size,
        checksum=row.checksum,
        media_type=row.media_type,
        at=time(row.at),
    )


def counts_record(seen: RunTally) -> RunCounts:
    """Return the record of run counts."""

    def ended(state: RunState) -> int | None:
        return None if seen.ended is None else seen.ended.get(state, 0)

    pending = seen.pending
    return RunCounts(
        as_of=time(seen.at),
        since=time(seen.since),
        running=seen.held.get(RunState.RUNNING, 0),
        claimed=seen.held.get(RunState.CLAIMED, 0),
        pending=sum(pending.values()),
        ready=pending.get(Admission.READY, 0),
        later=pending.get(Admission.LATER, 0),
        paused=pending.get(Admission.PAUSED, 0),
        waiting=sum(pending.get(mark, 0) for mark in WAITING),
        has_more_pending=seen.has_more_pending,
        completed=ended(RunState.COMPLETED),
        failed=ended(RunState.FAILED),
        timeout=ended(RunState.TIMEOUT),
        cancelled=ended(RunState.CANCELLED),
        expired=ended(RunState.EXPIRED),
        has_more_ended=seen.has_more_ended,
    )


def checkpoint_record(run_id: int, row: KeptState | None) -> RunCheckpoint:
    """Return the record of a checkpoint, with secrets as they were saved."""
    return RunCheckpoint(
        run_id=encode("run", run_id),
        state={} if row is None else json.loads(row.state),
        saved_at=None if row is None else time(row.saved_at),
        saved_by=None if row is None else encode("run", row.run_id),
    )


def _stages(text: str | None) -> dict[str, Seconds] | None:
    return None if text is None else {name: seconds(us) for name, us in json.loads(text).items()}


def _max_attempts(row: RunRow) -> int | None:
    """Return the config's maximum attempts; None if the error type decides."""
    retry = parsed(row.retry)
    return retry.get("max_attempts") if isinstance(retry, dict) else None


def _idempotency_key(row: RunRow) -> str | None:
    """Return the unique key of a scheduled attempt; None for a run without a config."""
    if row.config_id is None:
        return None
    item = f":{row.item_key}" if row.item_key else ""
    return (
        f"{encode('cfg', row.config_id)}:{iso(row.occurrence_time)}:{row.processor}:{row.attempt}"
        f"{item}"
    )
