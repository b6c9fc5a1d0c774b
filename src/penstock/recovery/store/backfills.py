"""Backfills, their partitions, and earlier work on partitions.

The row of a backfill is its lock: only the holder starts its partitions or changes its state, so
that any number of processes may try. `recovery.backfiller` executes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, first, one
from penstock.recovery.estimate import PhaseDuration, weekday_of
from penstock.recovery.fates import logged_complete
from penstock.recovery.rows import (
    BackfillProgress,
    BackfillRow,
    NewBackfill,
    NewPartition,
    PartitionRow,
    PartitionWork,
)


def backfill_insert(tx: Tx, new: NewBackfill) -> int:
    """Store a backfill; return its id."""
    return int(one(tx.rows("backfill_insert", new._asdict()))[0])


def backfill_partition_insert_many(tx: Tx, partitions: Sequence[NewPartition]) -> None:
    """Store the partitions of a backfill."""
    tx.run("backfill_partition_insert_many", batch=partitions)


def backfill_get(
    tx: Tx, backfill_id: int, customer_key: CustomerKey | None = None
) -> BackfillRow | None:
    """Return one backfill, optionally only if it belongs to a customer."""
    params = {"backfill_id": backfill_id, "customer": customer_key}
    return _backfill(first(tx.rows("backfill_get", params)))


def backfill_lock(
    tx: Tx, backfill_id: int, customer_key: CustomerKey | None = None
) -> BackfillRow | None:
    """Return one backfill, locked."""
    params = {"backfill_id": backfill_id, "customer": customer_key}
    return _backfill(first(tx.rows("backfill_lock", params)))


def backfill_take(tx: Tx, backfill_id: int) -> BackfillRow | None:
    """Return a backfill that has not ended, locked; None if it has, or another process holds it."""
    return _backfill(first(tx.rows("backfill_take", {"backfill_id": backfill_id})))


def backfill_live(tx: Tx, after: int, n: int) -> list[int]:
    """Return the backfills that have not ended, oldest first."""
    return [int(row[0]) for row in tx.rows("backfill_live", {"after": after, "n": n})]


def backfill_list(
    tx: Tx,
    *,
    customer_key: CustomerKey | None,
    pipeline_key: PipelineKey | None,
    state: str | None,
    before: int,
    limit: int,
) -> list[BackfillRow]:
    """Return backfills, newest first."""
    params = {
        "customer": customer_key,
        "pipeline": pipeline_key,
        "state": state,
        "before": before,
        "limit": limit,
    }
    return [BackfillRow._make(row) for row in tx.rows("backfill_list", params)]


def backfill_set(
    tx: Tx, backfill_id: int, state: str, note: str | None, parallelism: int | None = None
) -> None:
    """Change the state of a locked backfill."""
    params = {
        "backfill_id": backfill_id,
        "state": state,
        "note": note,
        "parallelism": parallelism,
    }
    tx.run("backfill_set", params)


def backfill_counts(tx: Tx, ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return the number of partitions of backfills by state."""
    found: dict[int, dict[str, int]] = {number: {} for number in ids}
    for number, state, count in tx.rows("backfill_counts", {"ids": list(ids)}) if ids else ():
        found[number][state] = int(count)
    return found


def backfill_take_of_flows(tx: Tx, flow_ids: Iterable[int]) -> list[BackfillRow]:
    """Return the backfills of flows as `backfill_take` does."""
    rows = tx.rows("backfill_take_of_flows", {"ids": sorted(set(flow_ids))})
    return [BackfillRow._make(row) for row in rows]


def backfill_settle(tx: Tx, backfill_id: int) -> list[str]:
    """Record the results of flows that ended or wait for a person; return the new states."""
    params = {"backfill_id": backfill_id}
    ended, stuck = tx.later("backfill_settle", params), tx.later("backfill_stuck", params)
    return [row[0] for row in (*ended.rows(), *stuck.rows())]


def backfill_progress(tx: Tx, backfill_id: int, n: int) -> BackfillProgress:
    """Record results as `backfill_settle` does, and read up to `n` waiting partitions."""
    params = {"backfill_id": backfill_id}
    ended, stuck = tx.later("backfill_settle", params), tx.later("backfill_stuck", params)
    running, waiting = tx.later("backfill_running", params), {**params, "n": n}
    due = [PartitionRow._make(row) for row in tx.rows("backfill_next", waiting)]
    count, now = one(running.rows())
    settled = [row[0] for row in (*ended.rows(), *stuck.rows())]
    return BackfillProgress(settled, int(count), due, now)


def backfill_partition_set_many(
    tx: Tx, backfill_id: int, rows: Sequence[tuple[int, str, int | None, str | None]]
) -> None:
    """Record (position, state, flow, note) of partitions that start or are skipped."""
    tx.later("backfill_partition_set_many", {"backfill_id": backfill_id}, rows)


def backfill_partition_end_pending(tx: Tx, backfill_id: int, note: str) -> int:
    """Cancel the partitions that have not started; return their number."""
    params = {"backfill_id": backfill_id, "note": note}
    return tx.run("backfill_partition_end_pending", params)


def backfill_partition_again(tx: Tx, backfill_id: int) -> int:
    """Put unsuccessful partitions back into the queue; return their number."""
    return tx.run("backfill_partition_again", {"backfill_id": backfill_id})


def backfill_open_flows(tx: Tx, backfill_id: int, *, only_failed: bool = False) -> list[int]:
    """Return the open flows of a backfill, or only those of partitions that failed."""
    params = {"backfill_id": backfill_id, "only_failed": only_failed}
    rows = tx.rows("backfill_open_flows", params)
    return [int(row[0]) for row in rows]


def backfill_partition_list(
    tx: Tx, backfill_id: int, *, state: str | None, after: int, limit: int
) -> list[PartitionRow]:
    """Return partitions of a backfill, in the order in which they start."""
    params = {"backfill_id": backfill_id, "state": state, "after": after, "limit": limit}
    return [PartitionRow._make(row) for row in tx.rows("backfill_partition_list", params)]


def partition_work(
    tx: Tx,
    series: tuple[CustomerKey, PipelineKey, int],
    partitions: Sequence[str],
    final_phases: Collection[str],
) -> dict[str, PartitionWork]:
    """Return earlier work on partitions; series: the customer, the pipeline and the config.

    final_phases: those that end a flow of the backfill.
    """
    customer, pipeline, config_id = series
    names = list(dict.fromkeys(partitions))
    if not names:
        return {}
    about = {"customer": customer, "pipeline": pipeline, "config_id": config_id, "names": names}
    flows = tx.later("partition_flows", {**about, "finals": list(final_phases)})
    phases = tx.later("partition_phases", about)
    found = {name: PartitionWork(name) for name in names}
    for name, flow_id, state, done in flows.rows():
        if found[name].state != "OPEN" or state == "OPEN":
            is_complete = state == "COMPLETE" and done == len(final_phases)
            found[name] = PartitionWork(name, flow_id, state, is_complete=is_complete)
    statuses: dict[str, dict[str, str]] = {}
    for name, phase, status in phases.rows():
        statuses.setdefault(name, {})[phase] = status
    return {
        name: work._replace(
            is_logged=name in statuses,
            is_complete=work.is_complete
            if work.flow_id is not None
            else logged_complete(final_phases, statuses.get(name, {})),
        )
        for name, work in found.items()
    }


def phase_durations(
    tx: Tx, customer_key: CustomerKey, pipeline_key: PipelineKey, phase: str, n: int
) -> list[PhaseDuration]:
    """Return how long a phase took in its newest flows, by the weekday of their partitions."""
    params = {"customer": customer_key, "pipeline": pipeline_key, "phase": phase, "n": n}
    return [
        PhaseDuration(weekday_of(partition), int(duration_us))
        for partition, duration_us in tx.rows("phase_durations", params)
    ]


def _backfill(row: tuple[object, ...] | None) -> BackfillRow | None:
    return None if row is None else BackfillRow._make(row)
