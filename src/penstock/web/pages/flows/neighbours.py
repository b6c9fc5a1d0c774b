"""Neighbours of a flow and of a run, which links and the keys `[` and `]` lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.errors import PenstockError
from penstock.flows.records import Flow, GridFlow
from penstock.runs.records import Run
from penstock.web.parts import Neighbour, address
from penstock.web.visit import Visit

PARTITIONS: Final = 90
"""Number of newer partitions among which the next one is found."""
OLDER: Final = 8
RUNS: Final = 200


def flow_neighbours(visit: Visit, one: Flow) -> Sequence[Neighbour]:
    """Return the flows of the previous and the next partition, of the same pipeline and mode."""

    def read() -> tuple[GridFlow | None, GridFlow | None]:
        grid = visit.client.flows.grid
        about = {"customer": one.customer, "mode": one.mode}
        older = grid(one.pipeline, last=one.partition, limit=OLDER, **about)
        newer = grid(one.pipeline, first=one.partition, limit=PARTITIONS, **about)
        before = [flow for flow in older.flows if flow.is_kept and flow.partition != one.partition]
        after = [flow for flow in newer.flows if flow.is_kept and flow.partition != one.partition]
        is_whole = one.partition in newer.partitions  # else the nearest one is not among them
        return next(iter(before), None), after[-1] if after and is_whole else None

    try:
        found = visit.share("neighbours", read, one.flow_id)
    except PenstockError:
        return ()  # the page is complete without them
    return [
        Neighbour(rel=rel, href=address("flows", flow.flow_id), label=flow.partition)
        for rel, flow in zip(("prev", "next"), found, strict=True)
        if flow is not None
    ]


def run_neighbours(visit: Visit, one: Run) -> Sequence[Neighbour]:
    """Return the previous and the next run of the same flow, else of the same config."""
    if one.flow_id is None and one.config_id is None:
        return ()
    try:
        if one.flow_id is not None:
            page = visit.client.runs.list(customer=one.customer, flow_id=one.flow_id, limit=RUNS)
        else:
            page = visit.client.runs.list(
                customer=one.customer, config_id=one.config_id, limit=RUNS
            )
    except PenstockError:
        return ()  # as above
    ids = [run.run_id for run in page.items]  # newest first
    if one.run_id not in ids:
        return ()
    place = ids.index(one.run_id)
    made = []
    for rel, other in (("prev", place + 1), ("next", place - 1)):
        if 0 <= other < len(ids):
            label = "Previous run" if rel == "prev" else "Next run"
            made.append(Neighbour(rel=rel, href=address("runs", ids[other]), label=label))
    return made
