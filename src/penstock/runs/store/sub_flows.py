"""Runs that wait for a flow: suspended without a worker, resumed by the end of the flow.

A wait is one row. The transaction that ends a flow returns the runs that wait for it to the queue,
so that neither a crash nor a lost wake-up leaves one waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import Micros
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first
from penstock.limits.store.run_queue import ADMIT
from penstock.runs.rows import HeldRun
from penstock.runs.store.finish import run_release_many


class SubFlowRow(NamedTuple):
    """A wait of an attempt: the flow, whether the wait opened it, and when the run resumed."""

    run_id: int
    flow_id: int
    is_opened: bool
    at: Micros
    resumed_at: Micros | None


def sub_flow_find(tx: Tx, root_run_id: int, wait_key: str) -> list[SubFlowRow]:
    """Return the waits of all attempts of a run under a key, newest first."""
    rows = tx.rows("sub_flow_find", {"root": root_run_id, "wait_key": wait_key})
    return [SubFlowRow._make(row) for row in rows]


def sub_flow_list(tx: Tx, run_id: int) -> list[SubFlowRow]:
    """Return the waits of one attempt, in order."""
    return [SubFlowRow._make(row) for row in tx.rows("sub_flow_list", {"run_id": run_id})]


def sub_flow_waiting(tx: Tx, run_id: int) -> int | None:
    """Return the flow that a run waits for; None if it waits for none."""
    row = first(tx.rows("sub_flow_waiting", {"run_id": run_id}))
    return None if row is None else int(row[0])


def sub_flow_ancestors(tx: Tx, flow_id: int, most: int) -> dict[int, int]:
    """Return the flows that wait for a flow, with their distance, up to `most`."""
    rows = tx.rows("sub_flow_ancestors", {"flow_id": flow_id, "most": most})
    return {row[0]: row[1] for row in rows}


def run_suspend(
    tx: Tx, held: HeldRun, wait_key: str, flow_id: int, *, is_opened: bool, is_ended: bool
) -> None:
    """Suspend a run that this transaction released until a flow ends; does nothing if the flow has
    ended.
    """
    params = {
        "run_id": held.run_id,
        "wait_key": wait_key,
        "root": held.root_run_id or held.run_id,
        "customer": held.customer_key,
        "flow_id": flow_id,
        "parent_flow_id": held.flow_id,
        "is_opened": is_opened,
        "is_ended": is_ended,
    }
    tx.run("sub_flow_put", params)
    if is_ended:
        tx.wake([ADMIT])
        return
    tx.run("run_suspend", {"run_id": held.run_id})
    why = f"waits for {encode('flow', flow_id)}"
    entry = Entry(
        "run", held.run_id, held.customer_key, "suspended", "worker", token=held.token, why=why
    )
    journal_append_many(tx, [entry])


def run_release_to_wait(tx: Tx, held: HeldRun) -> bool:
    """Take a run from its holder; return False if the token is stale. No attempt is counted."""
    if not run_release_many(tx, [(held.run_id, held.token, 0)]):
        return False
    if held.session_id is None:
        tx.run("lease_release_many", batch=[("run", held.run_id, held.token)])
    return True


def sub_flow_resume_many(tx: Tx, flow_ids: Sequence[int]) -> int:
    """Return the runs that waited for ended flows to the queue; return how many."""
    rows = tx.rows("sub_flow_resume_many", {"ids": sorted(flow_ids)})
    if rows:
        tx.wake([ADMIT])
        journal_append_many(
            tx,
            [
                Entry(
                    "run",
                    run_id,
                    CustomerKey(customer),
                    "resumed",
                    "penstock",
                    why=f"{encode('flow', flow_id)} ended",
                )
                for run_id, customer, flow_id in rows
            ],
        )
    return len(rows)


def sub_flow_abandon_many(tx: Tx, run_ids: Sequence[int]) -> list[tuple[int, int]]:
    """End the waits of ended runs; return (run, flow) of flows that no other run waits for."""
    rows = tx.rows("sub_flow_abandon_many", {"ids": sorted(run_ids)})
    return [(row[0], row[1]) for row in rows if row[2]]
