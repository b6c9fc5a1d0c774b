"""Sub-flows: flows that a run waits for.

Functions over a transaction. The next execution of the processor finds a wait by its key and
returns the result of the flow. A run never waits for a flow that waits for it, directly or through
others: under a lock of the customer's waits, every new wait is checked against the existing ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.access.store.names import NameResolver
from penstock.core.errors import Conflict
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.db.store import Transactions, Tx
from penstock.flows.cascade import FlowState
from penstock.flows.client.closing import flow_close
from penstock.flows.client.from_runs import run_trigger_open, run_trigger_target
from penstock.flows.client.target import TriggerTarget
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import flow_get, flow_lock_many
from penstock.runs.action_records import RunTrigger, SubFlow
from penstock.runs.client.actions import owner_of
from penstock.runs.rows import FinishedRun, HeldRun
from penstock.runs.states import RunState
from penstock.runs.store.runs import ordering_key_lock, run_get
from penstock.runs.store.sub_flows import (
    SubFlowRow,
    run_release_to_wait,
    run_suspend,
    sub_flow_abandon_many,
    sub_flow_ancestors,
    sub_flow_find,
    sub_flow_list,
)

DEPTH_MAX: Final = 8
"""Maximum depth of flows that wait for each other."""
USABLE: Final = (FlowState.OPEN.value, FlowState.COMPLETE.value, FlowState.DEGRADED.value)
"""States of a sub-flow that the next attempt uses; after any other it opens a new generation."""


def sub_flow_result(
    tx: Tx, names: NameResolver, held: HeldRun, wait_key: str, wanted: RunTrigger
) -> SubFlow | None:
    """Return the outcome of a wait; None if the run must be suspended for it.

    A new wait is validated: errors that would prevent opening the flow are raised here.
    """
    found = _found(tx, held, wait_key)
    if found is not None:
        row, flow = found
        return None if flow.is_open else sub_flow_record(row, flow)
    target = run_trigger_target(tx, names, owner_of(held), wanted)
    _check_target(tx, held, target)
    return None


def sub_flow_suspend(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    held: HeldRun,
    wait: tuple[str, RunTrigger],
) -> bool:
    """Suspend a run until its sub-flow has ended; return False if its token is stale.

    wait: the key of the wait, and the flow to open. A flow that has already ended returns the run
    to the queue immediately.
    """
    wait_key, wanted = wait
    ordering_key_lock(tx, f"sub-flows:{held.customer_key}")
    if not run_release_to_wait(tx, held):
        return False
    released = run_get(tx, held.run_id)
    if released is None or released.finished_at is not None:
        return True  # cancelled, because its flow was closed
    found = _found(tx, held, wait_key)
    if found is not None:
        flow_id, is_opened = found[0].flow_id, found[0].is_opened
    else:
        owner = owner_of(held)
        _check_target(tx, held, run_trigger_target(tx, names, owner, wanted))
        earlier = sub_flow_find(tx, held.root_run_id or held.run_id, wait_key)
        again = msgspec.structs.replace(wanted, force=True) if earlier else wanted
        opened = run_trigger_open(tx, store, names, owner, again)
        flow_id, is_opened = opened.flow.flow_id, opened.is_new
    (locked,) = flow_lock_many(tx, [flow_id])
    is_ended = not locked.flow.is_open
    run_suspend(tx, held, wait_key, flow_id, is_opened=is_opened, is_ended=is_ended)
    return True


def sub_flows_of(tx: Tx, run_id: int) -> list[SubFlow]:
    """Return the flows that a run waited for; those that retention removed are left out."""
    found = [(row, flow_get(tx, row.flow_id)) for row in sub_flow_list(tx, run_id)]
    return [sub_flow_record(row, flow) for row, flow in found if flow is not None]


def sub_flows_cancel(tx: Tx, finished: Sequence[FinishedRun]) -> None:
    """Cancel the flows that cancelled runs opened and still waited for."""
    ended = [end.run_id for end in finished if end.final_state == RunState.CANCELLED]
    if not ended:
        return
    for run_id, flow_id in sub_flow_abandon_many(tx, ended):
        flow = flow_get(tx, flow_id)
        if flow is not None and flow.is_open:  # it may still end before it is locked
            who = encode("run", run_id)
            flow_close(tx, flow_id, who, f"{who}, which waited for it, was cancelled")


def sub_flow_record(row: SubFlowRow, flow: FlowRow) -> SubFlow:
    """Return the record of a wait."""
    return SubFlow(
        flow_id=encode("flow", flow.flow_id),
        pipeline=flow.pipeline,
        partition=flow.partition,
        mode=flow.mode,
        generation=flow.generation,
        state=flow.state,
        is_degraded=flow.is_degraded,
        missing=json.loads(flow.missing),
        since=time(row.at),
        resumed_at=time_or_none(row.resumed_at),
    )


def _found(tx: Tx, held: HeldRun, wait_key: str) -> tuple[SubFlowRow, FlowRow] | None:
    """Return the flow of a wait: this attempt's own, or one of an earlier attempt that is usable.

    A later attempt does not use a flow that failed: it opens another generation.
    """
    for row in sub_flow_find(tx, held.root_run_id or held.run_id, wait_key):
        flow = flow_get(tx, row.flow_id)
        if flow is not None and (row.run_id == held.run_id or flow.state in USABLE):
            return row, flow
    return None


def _check_target(tx: Tx, held: HeldRun, target: TriggerTarget) -> None:
    """Raise Conflict if the run would wait for a flow that waits for it, or if the depth exceeds
    the maximum.
    """
    own = held.flow_id
    if own is None:
        return
    ancestors = {own: 0, **sub_flow_ancestors(tx, own, DEPTH_MAX)}
    if max(ancestors.values()) >= DEPTH_MAX:
        raise Conflict(
            f"sub-flows can be nested at most {DEPTH_MAX} deep: trigger the flow without wait=True."
        )
    existing = [] if target.existing is None or target.is_new else [target.existing]
    for flow in (*existing, *target.superseded):
        if flow.flow_id in ancestors:
            name = f"{flow.pipeline} {flow.partition} ({encode('flow', flow.flow_id)})"
            what = "is the run's own flow" if flow.flow_id == own else "waits for this run's flow"
            raise Conflict(
                f"the run cannot wait for {name}, which {what}: neither could ever end. Trigger "
                "another partition or pipeline, or trigger it without wait=True."
            )
