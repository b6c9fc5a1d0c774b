"""Live runs that do the same work as an ended run: other attempts, automatic or manual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.runs.rows import RunRow


class LiveAttempt(NamedTuple):
    """A live run, with the run that it retries and the first attempt of its chain."""

    run_id: int
    state: str
    parent_run_id: int | None
    root_run_id: int | None


def run_live_same(tx: Tx, run: RunRow, customer_key: CustomerKey) -> LiveAttempt | None:
    """Return a live run that does the work of an ended run.

    Runs of a config or a flow do the same work if they have the same occurrence, processor and
    item; any others if both come from the same run, through retries of any kind.
    """
    root = run.root_run_id or run.run_id
    params: dict[str, Any] = {
        "customer": customer_key,
        "slot": run.occurrence_time,
        "phase": run.phase,
        "processor": run.processor,
        "item_key": run.item_key,
        "flow_id": run.flow_id,
    }
    if run.config_id is not None:
        rows = tx.rows("run_live_of_occurrence", {**params, "config_id": run.config_id})
    else:
        params |= {"correlation_id": run.correlation_id or encode("run", root), "root": root}
        rows = tx.rows("run_live_of_submission", params)
    live = [LiveAttempt._make(row) for row in rows]
    if not live or run.config_id is not None or run.flow_id is not None:
        return live[0] if live else None
    origin, *others = run_origins(
        tx, [run.run_id, *(one.root_run_id or one.parent_run_id or one.run_id for one in live)]
    )
    return next((one for one, its in zip(live, others, strict=True) if its == origin), None)


def run_origins(tx: Tx, run_ids: Sequence[int]) -> list[int]:
    """Return the run from which each of these ended runs comes, through retries of any kind.

    If retention has deleted the first runs, it is the first that their retries name.
    """
    found = list(run_ids)
    while True:
        rows = tx.rows("run_parents", {"ids": sorted(set(found))})
        before = {run_id: root or parent for run_id, parent, root in rows}
        further = [before.get(run_id) or run_id for run_id in found]
        if further == found:
            return found
        found = further
