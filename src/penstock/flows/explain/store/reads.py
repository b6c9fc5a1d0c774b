"""Reads for explanations: runs, executions and latest decisions of a flow, and queue positions.

All reads use an index and are bounded. The caller has checked that it may see the flow or run.
`flows.explain.store.load` turns these rows into facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.db.store import Tx, first, one
from penstock.flows.explain.facts import HeartbeatFact
from penstock.flows.gates.rows import DecisionRow, InterventionRow
from penstock.flows.rows import FlowRow
from penstock.runs.rows import RunRow
from penstock.runs.states import RunState

EXECUTIONS_MAX = 1_000


class EndedExecution(NamedTuple):
    """An ended execution of a flow."""

    run_id: int
    phase: str
    processor: str
    status: str
    started_at: int | None
    ended_at: int
    error_type: str | None
    error: str | None
    retry_count: int


def runs_of_flow(tx: Tx, flow_id: int) -> list[RunRow]:
    """Return the live runs of a flow."""
    rows = tx.rows("run_list_of_flow", {"flow_id": flow_id})
    return [RunRow._make(row)._replace(is_dead=bool(row[33])) for row in rows]


def executions_of_flow(tx: Tx, flow: FlowRow, limit: int = EXECUTIONS_MAX) -> list[EndedExecution]:
    """Return the ended executions of a flow, oldest first; only the newest if there are more."""
    params = {
        "correlation_id": flow.correlation_id,
        "flow_id": flow.flow_id,
        "limit": limit,
    }
    return [
        EndedExecution._make(row) for row in reversed(tx.rows("execution_list_of_flow", params))
    ]


def decisions_latest(tx: Tx, flow_id: int) -> dict[tuple[str, str], DecisionRow]:
    """Return the last decision of every gate of a flow, by (phase, processor)."""
    rows = [DecisionRow._make(row) for row in tx.rows("decision_list_latest", {"flow_id": flow_id})]
    return {(row.phase, row.processor): row for row in rows}


def interventions_of_flow(tx: Tx, flow_id: int) -> list[InterventionRow]:
    """Return the open interventions of a flow."""
    rows = tx.rows("intervention_list_of_flow", {"flow_id": flow_id})
    return [InterventionRow._make(row) for row in rows]


def heartbeats_of(
    tx: Tx, runs: Iterable[RunRow], *, is_bound: bool = False
) -> dict[int, HeartbeatFact]:
    """Return the last heartbeats of the workers that hold runs, by run; one read if any is held.

    is_bound: leave out workers with a session, whose rows the role of a customer cannot see.
    """
    held = [run.run_id for run in runs if run.state in (RunState.CLAIMED, RunState.RUNNING)]
    rows = tx.rows("run_heartbeats", {"ids": held}) if held else []
    return {
        run_id: HeartbeatFact(at=last_at, until_at=until_at)
        for run_id, session_id, last_at, until_at in rows
        if (until_at is not None if session_id is None else not is_bound)
    }


def runs_ahead(tx: Tx, run_id: int, limit: int) -> int:
    """Return how many ready runs are claimed before this one, counted up to `limit`."""
    return int(one(tx.rows("run_ahead", {"run_id": run_id, "limit": limit}))[0])


def run_blocking(tx: Tx, run_id: int) -> int | None:
    """Return the run that a blocked run waits for."""
    row = first(tx.rows("run_blocking", {"run_id": run_id}))
    return None if row is None else int(row[0])
