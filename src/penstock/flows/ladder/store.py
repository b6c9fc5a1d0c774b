"""Due fallbacks, candidates for self-heal, and passes that only one process at a time makes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.core.clock import MINUTE
from penstock.db.store import Tx
from penstock.flows.advance.load import query_state, snapshots_of
from penstock.flows.advance.snapshot import FlowSnapshot, Wakeup
from penstock.flows.ladder.rungs import HEAL_EVERY, OVERDUE
from penstock.flows.rows import Locked
from penstock.flows.store.flows import flow_lock_many, flow_of_row

HEAL_LEAST_US = 5 * MINUTE
"""Minimum age of a flow for self-heal, in any mode."""


def fallbacks_take(tx: Tx, n: int, aside: Collection[int]) -> dict[int, set[str]]:
    """Claim phases whose fallback time has come, by flow; at most `n` phases at a time.

    Their flows are locked first; the next attempt is planned in the same transaction. Safe in any
    number of replicas.
    """
    due = {row[0] for row in tx.rows("fallback_due", {"n": n + len(aside)})} - set(aside)
    if not due:
        return {}
    locked = flow_lock_many(tx, due)
    is_open = {one.flow.flow_id for one in locked if one.flow.is_open}
    params = {"ids": sorted(due), "open": sorted(is_open), "retry_us": HEAL_EVERY}
    found: dict[int, set[str]] = {}
    for flow_id, phase in tx.rows("fallback_take", params):
        if flow_id in is_open:
            found.setdefault(flow_id, set()).add(phase)
    return found


def heal_candidates(tx: Tx, after: tuple[int, int], n: int) -> list[tuple[int, int]]:
    """Return (deadline, flow id) of flows in which something may be overdue, after a position."""
    params = {
        "deadline_at": after[0],
        "flow_id": after[1],
        "least_us": HEAL_LEAST_US,
        "overdue_us": OVERDUE,
        "n": n,
    }
    return [(row[1], row[0]) for row in tx.rows("heal_candidates", params)]


def snapshots_read(tx: Tx, ids: Sequence[int], *, lock: bool = False) -> list[FlowSnapshot]:
    """Return the snapshots of flows, locked or not; unlocked ones lack breakers."""
    if lock:
        locked = flow_lock_many(tx, ids)
    else:
        rows, now = tx.rows("flow_rows_many", {"ids": sorted(ids)}), tx.now()
        locked = [Locked(flow_of_row(row[:-1]), False, False, now, row[-1]) for row in rows]
    if not locked:
        return []
    wakeups = {one.flow.flow_id: Wakeup(all_gates=True) for one in locked}
    known = query_state(tx, wakeups)(locked)
    return snapshots_of(tx, locked, wakeups, known, is_read=not lock)


def pass_take(tx: Tx, name: str, every_us: int) -> bool:
    """Reserve the next pass of a service. Return False if it is not due yet."""
    return bool(tx.rows("pass_take", {"name": name, "every_us": every_us}))
