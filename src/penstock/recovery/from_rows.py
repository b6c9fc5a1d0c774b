"""Records of backfills from rows."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.clock import Micros
from penstock.core.formatting import id_or_none
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.recovery.fates import BackfillState, PartitionState
from penstock.recovery.records import Backfill, BackfillPartition
from penstock.recovery.rows import BackfillRow, PartitionRow

LEFT = (PartitionState.PENDING, PartitionState.RUNNING)


def backfill_record(row: BackfillRow, counts: Mapping[str, int], now: Micros) -> Backfill:
    """Return the record of a backfill; counts: its partitions by state."""
    total = sum(counts.values())
    done = total - sum(counts.get(state, 0) for state in LEFT)
    return Backfill(
        backfill_id=encode("bf", row.backfill_id),
        customer=row.customer_id,
        pipeline=row.pipeline,
        config_id=encode("cfg", row.config_id) if row.config_id else None,
        mode=row.mode,
        first=row.first_partition,
        last=row.last_partition,
        state=BackfillState(row.state),
        parallelism=row.parallelism,
        order="newest" if row.is_backward else "oldest",
        existing=row.existing,
        phases=list(row.phases),
        no_downstream=bool(row.no_downstream),
        one_pass=bool(row.one_pass),
        total=total,
        done=done,
        counts={state.value: counts[state] for state in PartitionState if state in counts},
        progress=round(100 * done / total, 1) if total else 100.0,
        eta_at=time_or_none(_eta(row, counts, done, now)),
        reason=row.reason,
        opened_by=row.opened_by,
        note=row.note,
        correlation_id=row.correlation_id,
        created_at=time(row.created_at),
        ended_at=time_or_none(row.ended_at),
    )


def partition_record(row: PartitionRow) -> BackfillPartition:
    """Convert a partition row of a backfill to its public record."""
    return BackfillPartition(
        position=row.position,
        partition=row.partition,
        state=PartitionState(row.state),
        flow_id=id_or_none("flow", row.flow_id),
        attempts=row.attempts,
        started_at=time_or_none(row.started_at),
        ended_at=time_or_none(row.ended_at),
        note=row.note,
    )


def _eta(row: BackfillRow, counts: Mapping[str, int], done: int, now: Micros) -> Micros | None:
    """Return the estimated end: the remaining work at the average pace so far."""
    worked = done - counts.get(PartitionState.SKIPPED, 0)
    left = sum(counts.get(state, 0) for state in LEFT)
    if row.state != BackfillState.RUNNING or worked <= 0 or not left or now <= row.created_at:
        return None
    return now + (now - row.created_at) * left // worked
