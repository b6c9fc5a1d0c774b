"""Reads of the grid: the newest partitions of a pipeline, their flows, and the states of phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx
from penstock.flows.rows import FlowRow, LoggedPhase, PhaseMarkRow
from penstock.flows.store.flows import flow_of_row

FLOWS_MAX: Final = 2_000
LOGGED_MAX: Final = 20_000


class GridKey(NamedTuple):
    """Customer, pipeline and mode of a grid."""

    customer: CustomerKey
    pipeline: PipelineKey
    mode: str | None


def grid_partitions(
    tx: Tx, key: GridKey, first: str | None, last: str | None, n: int
) -> Sequence[str]:
    """Return the newest partitions between two, both included, newest first."""
    params: dict[str, Any] = {**key._asdict(), "first": first or "", "last": last, "n": n}
    return [row[0] for row in tx.rows("grid_partitions", params)]


def grid_flows(tx: Tx, key: GridKey, partitions: Sequence[str]) -> Sequence[FlowRow]:
    """Return the flows of partitions, newest first."""
    params = {**key._asdict(), "names": list(partitions), "n": FLOWS_MAX}
    return [flow_of_row(row) for row in tx.rows("grid_flows", params)]


def grid_logged(tx: Tx, key: GridKey, partitions: Sequence[str]) -> Sequence[LoggedPhase]:
    """Return the logged phases of partitions, newest flow first."""
    params = {**key._asdict(), "names": list(partitions), "n": LOGGED_MAX}
    return [LoggedPhase._make(row) for row in tx.rows("grid_logged", params)]


def phase_marks(tx: Tx, flow_ids: Sequence[int]) -> Mapping[int, Sequence[PhaseMarkRow]]:
    """Return the phases of flows with their states; a phase with one gate per processor has the
    state of the first gate.
    """
    found: dict[int, dict[str, PhaseMarkRow]] = {flow_id: {} for flow_id in flow_ids}
    if flow_ids:
        for row in map(PhaseMarkRow._make, tx.rows("phase_marks", {"ids": list(flow_ids)})):
            found[row.flow_id].setdefault(row.phase, row)
    return {flow_id: list(phases.values()) for flow_id, phases in found.items()}
