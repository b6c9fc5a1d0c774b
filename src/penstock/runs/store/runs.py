"""Runs: the durable queue. Insert, claim, start, finish, release, cancel, read.

Every transition is a compare-and-set on (state, token): a caller with a stale token changes nothing
and finds its run missing from the result. `run_finish_many` is the only code path that ends runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.naming import CustomerKey, PoolKey, ProcessorKey
from penstock.db.store import Tx, first
from penstock.limits.store.run_queue import ADMIT, queue_leave
from penstock.runs.rows import FinishedRun, HeldRun, NewRun, RunEnd, RunRow
from penstock.runs.states import Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Parameters of a claim. `start` marks the runs RUNNING; they start immediately."""

    pool_key: PoolKey
    processors: Sequence[int]
    n: int
    session_id: int | None = None
    claimed_by: str | None = None
    start: bool = False
    customer_key: CustomerKey | None = None
    start_ranks: Mapping[int, int] | None = None
    """Lowest fair rank to read of each level, highest level first; None to read all."""


def run_insert_many(tx: Tx, runs: Sequence[NewRun], actor: str) -> list[int]:
    """Insert runs in order. Return their ids (fewer if an occurrence had already started)."""
    keys = sorted({run.ordering_key for run in runs if run.ordering_key is not None})
    if keys:
        tx.run("ordering_key_lock_many", batch=[(key,) for key in keys])
    rows = tx.rows("run_insert_many", {"actor": actor}, runs)
    if any(row[1] == Admission.LIMITED for row in rows):
        tx.wake([ADMIT])
    return [row[0] for row in rows]


def run_claim(tx: Tx, claim: Claim) -> list[HeldRun]:
    """Claim the next ready runs of a pool, in order of level, fair rank and age."""
    params: dict[str, Any] = {
        "pool": claim.pool_key,
        "processors": list(claim.processors),
        "n": claim.n,
        "session_id": claim.session_id,
        "claimed_by": claim.claimed_by,
        "start": claim.start,
        "customer": claim.customer_key,
    }
    starts = claim.start_ranks
    if starts is None:
        return [HeldRun._make(row) for row in tx.rows("run_claim", params)]
    params |= {"levels": list(starts), "fair_ranks": list(starts.values())}
    return [HeldRun._make(row) for row in tx.rows("run_claim_from", params)]


def run_claim_by_id(
    tx: Tx,
    run_id: int,
    claimed_by: str,
    session_id: int | None = None,
    customer_key: CustomerKey | None = None,
) -> HeldRun | None:
    """Claim one given run. Return None if it is not ready or already claimed."""
    params = {
        "run_id": run_id,
        "claimed_by": claimed_by,
        "session_id": session_id,
        "customer": customer_key,
    }
    row = first(tx.rows("run_claim_by_id", params))
    return None if row is None else HeldRun._make(row)


def fair_clock_raise(tx: Tx, claimed: Iterable[HeldRun]) -> None:
    """Advance the fairness clocks to the claimed ranks. Call at most about ten times a second."""
    highest: dict[tuple[int, int], int] = {}
    for run in claimed:
        key = (run.pool_key, run.level)
        highest[key] = max(highest.get(key, 0), run.fair_rank)
    tx.run(
        "fair_clock_raise", batch=[(*key, fair_rank) for key, fair_rank in sorted(highest.items())]
    )


def run_start_many(tx: Tx, held: Iterable[tuple[int, int]]) -> set[int]:
    """Mark (run, token) pairs RUNNING. Return the runs; those with a stale token are missing."""
    return {row[0] for row in tx.rows("run_start_many", batch=list(held))}


def run_finish_many(tx: Tx, finishes: Sequence[RunEnd]) -> list[FinishedRun]:
    """End runs whose token is current. Stale ones are ignored.

    If a batch ends a run twice (a worker retried its own call), the first end counts.
    """
    if len({finish.run_id for finish in finishes}) < len(finishes):
        firsts: dict[tuple[int, int], RunEnd] = {}
        for finish in finishes:
            firsts.setdefault((finish.run_id, finish.token), finish)
        finishes = list(firsts.values())
    rows = tx.rows("run_finish_many", batch=finishes)
    finished = [FinishedRun._make(row) for row in rows]
    keys = sorted({f.ordering_key for f in finished if f.ordering_key and not f.retry_run_id})
    if keys:
        run_unblock(tx, keys)
    queue_leave(tx, [end.run_id for end in finished if end.limits])
    return finished


def ordering_key_lock(tx: Tx, key: str) -> None:
    """Serialize with inserts and releases of this key's runs. Call it before locking any row."""
    ordering_key_lock_many(tx, [key])


def ordering_key_lock_many(tx: Tx, keys: Sequence[str]) -> None:
    """Lock several keys, in order, before any statement that is sent after this call."""
    tx.later("ordering_key_lock_many", batch=[(key,) for key in keys])


def run_unblock(tx: Tx, keys: Sequence[str]) -> int:
    """Make the next run of each ordering key ready. Return how many."""
    ordering_key_lock_many(tx, keys)
    return len(tx.rows("run_unblock_keys", {"keys": list(keys)}))


def run_held_get(tx: Tx, run_id: int, customer_key: CustomerKey | None = None) -> HeldRun | None:
    """Return a live run, locked, as its holder sees it."""
    row = first(tx.rows("run_held_get", {"run_id": run_id, "customer": customer_key}))
    return None if row is None else HeldRun._make(row)


def run_get(tx: Tx, run_id: int, customer_key: CustomerKey | None = None) -> RunRow | None:
    """Return a run, live or ended."""
    params = {"run_id": run_id, "customer": customer_key}
    row = first(tx.rows("run_get_live", params)) or first(tx.rows("run_get_ended", params))
    return None if row is None else run_of_row(row)


def run_chain(tx: Tx, run: RunRow, customer_key: CustomerKey) -> list[RunRow]:
    """Return the ended attempts of a run, oldest first."""
    root = run.root_run_id or run.run_id
    params = {"root": root, "customer": customer_key, "slot": run.occurrence_time}
    return [run_of_row(row) for row in tx.rows("run_chain", params)]


def run_live_retry(tx: Tx, run: RunRow, customer_key: CustomerKey) -> RunRow | None:
    """Return the attempt of a run's chain that waits or executes, other than the run itself."""
    params = {"root": run.root_run_id or run.run_id, "customer": customer_key,
              "slot": run.occurrence_time, "run_id": run.run_id}  # fmt: skip
    row = first(tx.rows("run_live_retry", params))
    return None if row is None else run_of_row(row)


def run_cancel_pending(tx: Tx, run_id: int) -> int | None:
    """Remove a pending run from the queue. Return the token with which it can be ended."""
    row = first(tx.rows("run_cancel_pending", {"run_id": run_id}))
    return None if row is None else int(row[0])


def run_cancel_pending_flow(
    tx: Tx, flow_id: int, processor_key: ProcessorKey | None = None
) -> list[tuple[int, int]]:
    """Remove the pending runs of a flow. Return (run, token), with which they can be ended."""
    params = {"flow_id": flow_id, "processor": processor_key}
    return [(row[0], row[1]) for row in tx.rows("run_cancel_pending_flow", params)]


def run_stop_flow(tx: Tx, flow_id: int, actor: str, reason: str | None, *, asks: bool) -> set[int]:
    """Let no live run of a flow be retried or returned to the queue. Return the held runs.

    asks: also ask the held ones to stop. The caller holds the flow's lock, so that runs of the flow
    are only added by ends that had not committed when this began: their retries are found too.
    """
    held: set[int] = set()
    params = {"flow_id": flow_id, "actor": actor, "reason": reason, "asks": asks}
    while first(tx.rows("run_of_flow_not_stopped", {"flow_id": flow_id})) is not None:
        rows = tx.rows("run_stop_flow", params)
        held |= {run_id for run_id, admission in rows if admission == Admission.NONE}
    return held


def run_cancel_request(tx: Tx, run_id: int, actor: str, reason: str | None = None) -> bool:
    """Request that the holder of a run stops it. Return False if no worker holds it."""
    return bool(tx.rows("run_cancel_request", {"run_id": run_id, "actor": actor, "reason": reason}))


def run_of_row(row: tuple[object, ...]) -> RunRow:
    """Build a run from a row of `live_columns` or `ended_columns`."""
    run = RunRow._make(row)
    met = None if run.sla_met is None else bool(run.sla_met)
    assert run.admission is None or run.admission in tuple(Admission)
    return run._replace(sla_met=met, is_dead=bool(run.is_dead))


def run_live_of_item(
    tx: Tx, flow_id: int, processor_key: ProcessorKey, item_key: str
) -> tuple[int, str] | None:
    """Return the live run of an item and its state; an item has at most one."""
    params = {"flow_id": flow_id, "processor": processor_key, "item_key": item_key}
    row = first(tx.rows("run_live_of_item", params))
    return None if row is None else (row[0], row[1])


def run_retry_lock(tx: Tx, run_id: int) -> None:
    """Lock a run against a concurrent retry until the transaction ends; read after this call."""
    tx.rows("run_retry_lock", {"run_id": run_id})


def cohort_reopen(tx: Tx, run_id: int) -> None:
    """Count an ended run as in progress again, because a person retries it."""
    tx.run("cohort_reopen", {"run_id": run_id})
