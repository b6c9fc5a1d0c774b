"""Records of flows from the rows of the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, cast

from penstock.core.formatting import id_or_none
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.entities.changed import ChangedEntities
from penstock.entities.rows import ReportedEntities
from penstock.flows.cascade import CompletionStatus, FlowState
from penstock.flows.forecast.forecast import Forecast
from penstock.flows.gates.rows import Trigger
from penstock.flows.gates.verdict import Verdict
from penstock.flows.phases import PhaseState
from penstock.flows.records import (
    Flow,
    FlowCompletion,
    FlowPhase,
    HeldUpState,
    PhaseMark,
    PhaseTrigger,
    ProcessorInput,
)
from penstock.flows.rows import CompletionRow, FlowRow, PhaseMarkRow, PhaseRow, legacy_reported

COMPLETED: Final = (PhaseState.COMPLETE, PhaseState.DEGRADED)


def flow_record(
    row: FlowRow,
    phase_state: str | None = None,
    expected: tuple[Forecast | None, int | None] = (None, None),
    marks: Sequence[PhaseMarkRow] | None = None,
    progress: tuple[int, int] | None = None,
    *,
    cancel_reason: str | None = None,
) -> Flow:
    """Return the record of a flow; `phase_state` is that of a waiting or blocked phase.

    expected: its forecast, and when it should end. marks: the states of its phases.
    progress: its completed and its expected phases. cancel_reason: as recorded in the journal.
    """
    seen, target_at = expected
    completed, planned = (None, None) if progress is None else progress
    return Flow(
        cancel_reason=cancel_reason,
        phases_expected=planned,
        phases_completed=completed,
        progress_percentage=None if progress is None else percentage(*progress),
        slo_at=time_or_none(target_at),
        eta_p50_at=None if seen is None else time(seen.p50_at),
        eta_p90_at=None if seen is None else time(seen.p90_at),
        slo_miss_probability=None if seen is None else seen.miss,
        phases=None if marks is None else [mark_record(one) for one in marks],
        flow_id=encode("flow", row.flow_id),
        customer=row.customer_id,
        pipeline=row.pipeline,
        partition=row.partition,
        mode=row.mode,
        generation=row.generation,
        state=FlowState(row.state),
        phase_state=cast("HeldUpState | None", phase_state if row.state == "OPEN" else None),
        is_degraded=bool(row.is_degraded),
        missing=json.loads(row.missing),
        correlation_id=row.correlation_id,
        trigger_source=row.trigger_source,
        opened_by=row.opened_by,
        config_id=encode("cfg", row.config_id) if row.config_id else None,
        parent_flow_id=id_or_none("flow", row.parent_flow_id),
        start_phase=row.start_phase,
        created_at=time(row.created_at),
        ended_at=time_or_none(row.ended_at),
        deadline_at=time_or_none(row.deadline_at),
    )


def progress_of(phases: Sequence[PhaseMarkRow]) -> tuple[int, int]:
    """Return how many phases of a flow completed, and how many it runs."""
    states = [row.state for row in phases if row.state != PhaseState.SKIPPED]
    return sum(state in COMPLETED for state in states), len(states)


def percentage(part: int, whole: int) -> float:
    """Return a share in percent with one decimal; 100 only if complete or if the total is 0."""
    return 100.0 if part >= whole else min(99.9, round(100 * part / whole, 1))


def mark_record(row: PhaseMarkRow) -> PhaseMark:
    """Return the record of the state of a phase."""
    return PhaseMark(
        phase=row.phase,
        state=PhaseState(row.state),
        verdict=None if row.verdict is None else Verdict(row.verdict),
        is_degraded=bool(row.is_degraded),
        since=time(row.since_at),
        started_at=time_or_none(row.started_at),
        ended_at=time_or_none(row.ended_at),
    )


def phase_record(row: PhaseRow) -> FlowPhase:
    """Return the record of a phase, or of the gate of a processor."""
    context = row.gate_context
    verdict = context.get("verdict")
    return FlowPhase(
        phase=row.phase,
        processor=row.processor or None,
        state=PhaseState(row.state),
        since=time(row.since_at),
        started_at=time_or_none(row.started_at),
        ended_at=time_or_none(row.ended_at),
        next_probe_at=time_or_none(row.probe_at),
        waiting_since=time_or_none(row.waiting_since),
        tries=row.tries,
        is_degraded=bool(row.is_degraded),
        verdict=None if verdict is None else Verdict(verdict),
        missing=list(context.get("missing", ())),
        warnings=list(context.get("warnings", ())),
    )


def completion_record(row: CompletionRow, reported: ReportedEntities | None) -> FlowCompletion:
    """Return the record of a completion, with the changed entities that were reported with it."""
    reported = reported or legacy_reported(row)
    return FlowCompletion(
        phase=row.phase,
        processor=row.processor,
        status=CompletionStatus(row.status),
        at=time(row.at),
        run_id=id_or_none("run", row.run_id),
        execution_id=row.execution_id,
        records=row.records,
        quality=row.quality,
        total_expected=row.total_expected,
        completeness_pct=row.completeness_pct,
        entities=None if reported is None else reported.ids,
        entities_total=None if reported is None else dict(reported.counts),
        everything_changed=None if reported is None else reported.unknown,
    )


def input_record(phase: str, processor: str, changed: ChangedEntities) -> ProcessorInput:
    """Return the record of an incremental processor's input."""
    return ProcessorInput(
        phase=phase,
        processor=processor,
        everything=changed.everything,
        reason=changed.reason,
        entities_total=changed.counts,
        partitions=list(changed.partitions),
    )


def trigger_record(row: Trigger) -> PhaseTrigger:
    """Convert a trigger row to its public record."""
    return PhaseTrigger(
        phase=row.phase,
        processor=row.processor or None,
        at=time(row.at),
        verdict=Verdict(row.verdict),
        trigger_source=row.source,
        is_observed=bool(row.is_observed),
        runs=row.runs,
    )
