"""Expansions: the durable record of a processor's items in a flow.

The transaction of a trigger records the expansion, the sealed list of items and the first runs. The
rest of a long list is stored in parts. A transaction that holds the flow's lock creates the runs of
the next part and deletes the part, so that a crash at any commit neither loses nor repeats a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.core.naming import CustomerKey, ProcessorKey
from penstock.db.store import Tx
from penstock.flows.items.fan_in import ExpansionRow, ExpansionState
from penstock.flows.items.item_list import KeyedItem, batches, decoded, encoded
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import flow_lock_many, flow_of_row
from penstock.runs.rows import FinishedRun
from penstock.runs.states import RunState, RunStatus


class NewExpansion(NamedTuple):
    """An expansion to record; `items` is None until they have been evaluated."""

    flow_id: int
    processor_key: ProcessorKey
    customer_key: CustomerKey
    phase: str
    processor: str
    source: str
    is_entry: bool
    items: Sequence[KeyedItem] | None = None
    error: str | None = None

    @property
    def state(self) -> ExpansionState:
        """Initial state of the expansion."""
        if self.error is not None:
            return ExpansionState.FAILED
        return ExpansionState.EVALUATING if self.items is None else ExpansionState.SEALED


def expansion_insert_many(
    tx: Tx, rows: Sequence[NewExpansion]
) -> list[tuple[NewExpansion, Sequence[KeyedItem]]]:
    """Record expansions and their items. Return each new one with the items to create runs for."""
    parts = {(r.flow_id, r.processor_key): batches(r.items or ()) for r in rows}
    batch = []
    for r in rows:
        first, *rest = parts[r.flow_id, r.processor_key]
        is_due = r.state is ExpansionState.EVALUATING or bool(rest)
        batch.append(
            (
                r.flow_id, r.processor_key, r.customer_key, r.phase, r.processor, r.state.value,
                r.source, r.is_entry, len(r.items or ()), len(first), is_due, r.error,
            )
        )  # fmt: skip
    new = {(row[0], row[1]) for row in tx.rows("expansion_insert_many", batch=batch)}
    made = [r for r in rows if (r.flow_id, r.processor_key) in new]
    for r in made:
        key = (r.flow_id, r.processor_key)
        _put_parts(tx, key, r.customer_key, parts[key][1:])
    return [(r, parts[r.flow_id, r.processor_key][0]) for r in made]


def expansion_seal(
    tx: Tx, row: ExpansionRow, items: Sequence[KeyedItem]
) -> Sequence[KeyedItem] | None:
    """Store the items of an evaluated expansion. Return those to create runs for.

    None if its lease is no longer current: another process has stored them.
    """
    first, *rest = batches(items)
    params = {
        "flow_id": row.flow_id,
        "processor": row.processor_key,
        "token": row.token,
        "state": ExpansionState.SEALED.value,
        "total": len(items),
        "created": len(first),
        "is_due": bool(rest),
        "error": None,
    }
    if not tx.rows("expansion_seal", params):
        return None
    _put_parts(tx, (row.flow_id, row.processor_key), row.customer_key, rest)
    return first


def expansion_fail(tx: Tx, row: ExpansionRow, error: str) -> bool:
    """Record that the items cannot be determined. Return False if the lease is not current."""
    params = {
        "flow_id": row.flow_id,
        "processor": row.processor_key,
        "token": row.token,
        "state": ExpansionState.FAILED.value,
        "total": 0,
        "created": 0,
        "is_due": False,
        "error": error,
    }
    return bool(tx.rows("expansion_seal", params))


def expansion_postpone(
    tx: Tx, row: ExpansionRow, error: str, delay_us: int, *, counts: bool = True
) -> None:
    """Evaluate an expansion again after a delay; `counts` counts the attempt."""
    params = {
        "flow_id": row.flow_id,
        "processor": row.processor_key,
        "token": row.token,
        "delay_us": delay_us,
        "tries": int(counts),
        "error": error,
    }
    tx.run("expansion_postpone", params)


def expansion_lease(tx: Tx, row: ExpansionRow, lease_us: int) -> ExpansionRow | None:
    """Lease the evaluation of an expansion. Return None if another process has it."""
    params = {
        "flow_id": row.flow_id,
        "processor": row.processor_key,
        "token": row.token,
        "lease_us": lease_us,
    }
    found = tx.rows("expansion_lease", params)
    return row._replace(token=found[0][0]) if found else None


def expansion_due(tx: Tx, n: int) -> list[ExpansionRow]:
    """Return expansions that must be evaluated or continued now."""
    return [_row(row) for row in tx.rows("expansion_due", {"n": n})]


def expansion_flow_lock(tx: Tx, ids: Sequence[int], *, waits: bool = False) -> dict[int, FlowRow]:
    """Lock flows in id order; without `waits`, flows locked by another transaction are skipped."""
    if waits:
        return {one.flow.flow_id: one.flow for one in flow_lock_many(tx, ids)}
    rows = tx.rows("expansion_flow_lock", {"ids": list(ids)})
    return {flow.flow_id: flow for flow in map(flow_of_row, rows)}


def expansion_items_take(
    tx: Tx, rows: Iterable[ExpansionRow]
) -> dict[tuple[int, int], list[KeyedItem]]:
    """Delete and return the next stored items of each expansion, to create their runs."""
    batch = [(row.flow_id, row.processor_key) for row in rows]
    found = tx.rows("expansion_items_take", batch=batch)
    return {(row[0], row[1]): decoded(row[2]) for row in found}


def expansion_advance_many(tx: Tx, created: Sequence[tuple[int, int, int]]) -> None:
    """Count created runs: (flow, processor, number)."""
    tx.later("expansion_advance_many", batch=created)


def expansion_cancel(tx: Tx, flow_ids: Sequence[int]) -> None:
    """Create no more runs of items in these flows."""
    tx.run("expansion_cancel", {"ids": list(flow_ids)})


def expansions_fold_later(
    tx: Tx, ids: Sequence[int]
) -> Callable[[], dict[int, list[ExpansionRow]]]:
    """Add up the counts of locked flows; the returned function waits for their expansions."""
    result = tx.later("expansion_fold", {"ids": list(ids)})
    return lambda: _by_flow(ids, [_row(row) for row in result.rows()])


def expansions_of(tx: Tx, ids: Sequence[int]) -> dict[int, list[ExpansionRow]]:
    """Return the expansions of flows with their current counts."""
    rows = tx.rows("expansion_rows_for_flows", {"ids": list(ids)})
    return _by_flow(ids, [_row(row) for row in rows])


def item_sources(tx: Tx, run_ids: Sequence[int], since: int, until: int) -> dict[int, str | None]:
    """Return the stored results of runs that ended between two times."""
    params = {"ids": list(run_ids), "since": since, "until": until}
    return dict(tx.rows("item_sources", params))


def item_put_many(tx: Tx, finished: Sequence[FinishedRun]) -> None:
    """Record items whose runs ended without a retry."""
    batch = [
        (
            end.flow_id, end.processor_key, end.item_key, end.customer_key, _status(end),
            end.run_id, end.records, end.error_type,
        )
        for end in finished
    ]  # fmt: skip
    tx.later("item_put_many", batch=batch)


def _status(end: FinishedRun) -> str:
    if end.final_state != RunState.COMPLETED:
        return "failed"
    return "partial" if end.status == RunStatus.PARTIAL_SUCCESS else "success"


def _put_parts(
    tx: Tx, key: tuple[int, int], customer_key: CustomerKey, parts: Sequence[Sequence[KeyedItem]]
) -> None:
    if parts:
        tx.later(
            "expansion_items_put_many",
            batch=[(*key, n, customer_key, encoded(part)) for n, part in enumerate(parts)],
        )


def _by_flow(ids: Sequence[int], rows: Iterable[ExpansionRow]) -> dict[int, list[ExpansionRow]]:
    found: dict[int, list[ExpansionRow]] = {flow_id: [] for flow_id in ids}
    for row in rows:
        found[row.flow_id].append(row)
    return found


def _row(row: Sequence[object]) -> ExpansionRow:
    made = ExpansionRow._make(row)
    return made._replace(is_entry=bool(made.is_entry))
