"""Rules for the partitions of a backfill, based on earlier work. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from penstock.core.ids import encode
from penstock.flows.cascade import FlowState
from penstock.pipelines.plan import Plan
from penstock.recovery.rows import PartitionWork


class PartitionState(StrEnum):
    """The state of a partition in a backfill."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class BackfillState(StrEnum):
    """Lifecycle state of a backfill."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


PAUSED: Final = "backfill_paused"
FAILED: Final = "backfill_failed"
STUCK: Final = "backfill_stuck"
ALERT_RULES: Final = (PAUSED, FAILED, STUCK)
"""Rules of the alerts about a backfill; resuming or cancelling it resolves them."""
COMPLETE: Final = "complete"
"""Reason for skipping a partition that needs no more work."""
LOGGED_COMPLETE: Final = "complete"
"""Status of a complete phase in the log of phases."""
ENDED: Final = (BackfillState.COMPLETE, BackfillState.FAILED, BackfillState.CANCELLED)
UNSUCCESSFUL: Final = (PartitionState.FAILED, PartitionState.CANCELLED)


def skip_reason(work: PartitionWork, existing: str, *, is_repeated: bool = False) -> str | None:
    """Return why a backfill skips a partition; None if it processes it.

    existing: `incomplete` processes what has not completed, `missing` what was never started, `all`
    everything. A flow that ended before the backfill's final phases has not completed. A partition
    in progress is never started a second time. is_repeated: it failed in this backfill and is tried
    again.
    """
    if work.state == FlowState.OPEN and work.flow_id is not None:
        return f"{encode('flow', work.flow_id)} is in progress"
    if existing == "all":
        return None
    if work.is_complete:
        return COMPLETE
    if existing == "missing" and not is_repeated and (work.state is not None or work.is_logged):
        return "processed before"
    return None


def end_state(counts: Mapping[str, int]) -> BackfillState | None:
    """Return the final state of a backfill with these partitions; None while any is unfinished."""
    if counts.get(PartitionState.PENDING, 0) or counts.get(PartitionState.RUNNING, 0):
        return None
    if any(counts.get(state, 0) for state in UNSUCCESSFUL):
        return BackfillState.FAILED
    return BackfillState.COMPLETE


def failures(counts: Mapping[str, int]) -> int:
    """Return the number of partitions that failed."""
    return counts.get(PartitionState.FAILED, 0)


def logged_complete(finals: Collection[str], statuses: Mapping[str, str]) -> bool:
    """Return whether all final phases are logged as complete; statuses: the newest, by phase."""
    return bool(finals) and all(statuses.get(name) == LOGGED_COMPLETE for name in finals)


def phases_run(plan: Plan, starts: Sequence[str], *, no_downstream: bool) -> list[str]:
    """Return the phases that a flow runs; starts: the first ones, empty for the entry phases."""
    begins = list(starts) or [phase.name for phase in plan.phases if not phase.after]
    if no_downstream:
        chosen = set(begins)
    else:
        chosen = {*begins, *(later for name in begins for later in plan.downstream(name))}
    return [phase.name for phase in plan.phases if phase.name in chosen]


def final_phases(plan: Plan, starts: Sequence[str], *, no_downstream: bool) -> list[str]:
    """Return the phases that a flow runs and that none of its other phases follows."""
    run = phases_run(plan, starts, no_downstream=no_downstream)
    return [name for name in run if not {*plan.downstream(name)} & {*run}]
