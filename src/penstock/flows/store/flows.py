"""Flows and their phases: open, lock, read, write, end.

A flow is opened once per (customer, pipeline, config, partition, mode, generation); generation
numbers outlive pruning. Every writer locks the flow's row first (`flow_lock_many`, in id order) and
reads the rest after that. `flows.cascade` decides which transitions follow, not this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.clock import MINUTE, Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, first
from penstock.flows.cascade import FlowState
from penstock.flows.rows import (
    ConfigDefaults,
    FlowFilter,
    FlowRow,
    Locked,
    NewFlow,
    NewPhase,
    PhaseRow,
)
from penstock.runs.store.sub_flows import sub_flow_resume_many

LISTS: Final[Mapping[str, str]] = {
    FlowState.OPEN: "flow_list_open",
    FlowState.FAILED: "flow_list_failed",
    FlowState.DEGRADED: "flow_list_failed",
}
"""Statements that list the flows of a state by an index."""
SEARCHED_MAX: Final = 10_000
"""Maximum number of flows that one page of a search examines."""
OPENING_MAX: Final = 10 * MINUTE
"""Maximum duration of a transaction that opens flows; ids may be out of order within it."""
GATES_ASIDE = 20
"""Maximum number of due gates that a skipped flow may have at a time."""


def generation_next_many(
    tx: Tx, keys: Iterable[tuple[int, int, int, str, str]], *, reruns: int = 0
) -> dict[tuple[int, int, int, str, str], int]:
    """Increment the generation of each key. A concurrent opener of the same key waits."""
    batch = [(*key, reruns) for key in sorted(set(keys))]
    found = tx.rows("generation_next_many", batch=batch)
    return {(row[0], row[1], row[2], row[3], row[4]): row[5] for row in found}


def generation_take_many(
    tx: Tx, chosen: Mapping[tuple[int, int, int, str, str], int]
) -> set[tuple[int, int, int, str, str]]:
    """Raise the generation of each key to a chosen number. Return the keys where it was lower.

    The numbers outlive pruning, so a generation whose flow is gone is not opened again.
    """
    batch = [(*key, number) for key, number in sorted(chosen.items())]
    found = tx.rows("generation_take_many", batch=batch)
    return {(row[0], row[1], row[2], row[3], row[4]) for row in found}


def generation_get(tx: Tx, key: tuple[int, int, int, str, str]) -> tuple[int, int]:
    """Return (newest generation, reruns by late data) of a key, locked; (0, 0) if there is none."""
    customer, pipeline, config_id, partition, mode = key
    params = {
        "customer": customer,
        "pipeline": pipeline,
        "config_id": config_id,
        "partition": partition,
        "mode": mode,
    }
    row = first(tx.rows("generation_get", params))
    return (0, 0) if row is None else (row[0], row[1])


def generation_newest(tx: Tx, key: tuple[int, int, int, str, str]) -> int:
    """Return the newest generation of a key, counting flows of no config; 0 if there is none."""
    customer, pipeline, config_id, partition, mode = key
    params = {
        "customer": customer,
        "pipeline": pipeline,
        "config_id": config_id,
        "partition": partition,
        "mode": mode,
    }
    row = first(tx.rows("generation_newest", params))
    return 0 if row is None or row[0] is None else int(row[0])


def flow_insert_many(tx: Tx, flows: Sequence[NewFlow]) -> dict[tuple[Any, ...], int]:
    """Insert flows. Return (key, generation) → id of the new ones."""
    found = tx.rows("flow_insert_many", batch=flows)
    return {(*row[1:6], row[6]): row[0] for row in found}


def phase_insert_many(tx: Tx, phases: Sequence[NewPhase]) -> None:
    """Insert the phases of new flows."""
    tx.later("phase_insert_many", batch=phases)


def flow_lock_many(tx: Tx, ids: Iterable[int]) -> list[Locked]:
    """Lock flows in id order. Read everything else about them after this call."""
    return flow_lock_later(tx, ids)()


def flow_lock_later(
    tx: Tx, ids: Iterable[int], *, skips_locked: bool = False
) -> Callable[[], list[Locked]]:
    """Send the query of `flow_lock_many`; statements after it may share its flush.

    skips_locked: wait for no lock; leave out the flows that would require it.
    """
    name = "flow_lock_free_many" if skips_locked else "flow_lock_many"
    result = tx.later(name, {"ids": sorted(set(ids))})
    return lambda: [
        Locked(flow_of_row(row[:-4]), bool(row[-4]), bool(row[-3]), *row[-2:])
        for row in result.rows()
    ]


def flow_get(tx: Tx, flow_id: int, customer_key: CustomerKey | None = None) -> FlowRow | None:
    """Return one flow, optionally only if it belongs to a customer."""
    row = first(tx.rows("flow_get", {"flow_id": flow_id, "customer": customer_key}))
    return None if row is None else flow_of_row(row)


def flow_find(
    tx: Tx,
    customer_key: CustomerKey,
    pipeline_key: PipelineKey,
    partition: str,
    mode: str | None = None,
    *,
    config_id: int | None = None,
) -> FlowRow | None:
    """Return the newest flow of a partition; an open one takes precedence.

    config_id: only flows of this config, and those that belong to none.
    """
    params = {
        "customer": customer_key,
        "pipeline": pipeline_key,
        "partition": partition,
        "mode": mode,
        "config_id": config_id,
    }
    row = first(tx.rows("flow_find", params))
    return None if row is None else flow_of_row(row)


def phase_states(tx: Tx, flow_ids: Sequence[int]) -> dict[int, str]:
    """Return BLOCKED or WAITING for the flows that have such a phase."""
    return dict(tx.rows("flow_phase_states", {"ids": list(flow_ids)})) if flow_ids else {}


def flow_open_list(
    tx: Tx,
    customer_key: CustomerKey,
    pipeline_key: PipelineKey,
    partition: str,
    mode: str,
    config_id: int,
) -> list[FlowRow]:
    """Return the open flows of a key and those of no config, oldest first."""
    params = {
        "customer": customer_key,
        "pipeline": pipeline_key,
        "partition": partition,
        "mode": mode,
        "config_id": config_id,
    }
    return [flow_of_row(row) for row in tx.rows("flow_open_list", params)]


def flow_list(tx: Tx, wanted: FlowFilter) -> list[FlowRow]:
    """Return flows, newest first."""
    name = LISTS.get(wanted.state or "", "flow_list")
    return [flow_of_row(row) for row in tx.rows(name, wanted._asdict())]


def flow_list_trouble(tx: Tx, wanted: FlowFilter) -> list[FlowRow]:
    """Return flows that ended failed or degraded, and open ones that are stuck, newest first."""
    found = [
        flow_of_row(row)
        for name in ("flow_list_failed", "flow_list_stuck")
        for row in tx.rows(name, wanted._asdict())
    ]
    return sorted(found, key=lambda flow: -flow.flow_id)[: wanted.limit]


def flow_list_ended(tx: Tx, customer: int | None, since: Micros, limit: int) -> list[FlowRow]:
    """Return flows that ended since a time, most recent first; reads a bounded number."""
    params = {"since": since, "limit": limit}
    if customer is None:
        rows = tx.rows("flow_list_ended", params)
    else:
        params |= {"customer": customer, "searched": SEARCHED_MAX}
        rows = tx.rows("flow_list_ended_customer", params)
    return [flow_of_row(row) for row in rows]


def flow_search(tx: Tx, wanted: FlowFilter) -> tuple[list[FlowRow], int | None]:
    """Return the matching flows among the next ones, and where to continue; None at the end."""
    params = {**wanted._asdict(), "searched": SEARCHED_MAX}
    found = [flow_of_row(row) for row in tx.rows("flow_search", params)]
    if len(found) >= wanted.limit:
        return found, found[-1].flow_id
    ((count, last),) = tx.rows("flow_search_end", params)
    return found, last if count >= SEARCHED_MAX else None


def flow_id_from(tx: Tx, at: Micros) -> int:
    """Return an id such that all flows with lower ids were opened before a time."""
    ((low, high),) = tx.rows("flow_id_range")
    if low is None:
        return 0
    wanted = at - OPENING_MAX
    high += 1
    while low < high:
        middle = (low + high) // 2
        row = first(tx.rows("flow_created_from", {"first_id": middle}))
        if row is None or row[1] >= wanted:
            high = middle
        else:
            low = row[0] + 1
    return int(low)


def flow_end_many(tx: Tx, rows: Sequence[tuple[int, str, bool, str, bool]]) -> None:
    """Write (flow, state, is_degraded, missing, is_ended); resume runs that wait for an end."""
    tx.later("flow_end_many", batch=rows)
    ended = [row[0] for row in rows if row[4]]
    if ended:
        sub_flow_resume_many(tx, ended)


def flow_begin_many(tx: Tx, rows: Sequence[tuple[int, int, int | None]]) -> None:
    """Write (flow, deadline, begin) of flows that begin, or wait for the flow before them."""
    if rows:
        tx.later("flow_begin_many", batch=rows)


def flow_open_for_config(tx: Tx, config_id: int) -> int | None:
    """Return an open flow of a config, or None."""
    row = first(tx.rows("flow_open_of_config", {"config_id": config_id}))
    return None if row is None else int(row[0])


def flow_lock_open(tx: Tx, configs: Sequence[int]) -> None:
    """Lock the open flows of configs, to serialize their ends with the opening of new ones."""
    tx.rows("flow_lock_open", {"ids": sorted(set(configs))})


def flow_queued(tx: Tx, config_id: int) -> int | None:
    """Return a flow of a config that waits for an earlier one to end, or None."""
    row = first(tx.rows("flow_queued", {"config_id": config_id}))
    return None if row is None else int(row[0])


def flow_waits_for(tx: Tx, flow_id: int) -> int | None:
    """Return the earlier flow of the same config that a flow waits for, or None."""
    row = first(tx.rows("flow_behind", {"flow_id": flow_id}))
    return None if row is None else row[0]


def phases_of(tx: Tx, ids: Sequence[int]) -> dict[int, list[PhaseRow]]:
    """Return the phases of flows, in insertion order."""
    return phases_later(tx, ids)()


def phases_later(tx: Tx, ids: Sequence[int]) -> Callable[[], dict[int, list[PhaseRow]]]:
    """Send the query of `phases_of`; the returned function waits for the result."""
    result = tx.later("phase_rows_for_flows", {"ids": list(ids)})

    def read() -> dict[int, list[PhaseRow]]:
        found: dict[int, list[PhaseRow]] = {flow_id: [] for flow_id in ids}
        for row in result.rows():
            found[row[0]].append(_phase(row))
        return found

    return read


class LongFlowRows(NamedTuple):
    """Some phases of a long flow, and whether any of its phases started degraded."""

    phases: list[PhaseRow]
    is_degraded: bool


def phases_named_later(tx: Tx, flow_id: int, names: Sequence[str]) -> Callable[[], LongFlowRows]:
    """Send the queries for some phases of a long flow; the returned function waits for them."""
    params = {"flow_id": flow_id, "names": list(names)}
    rows, degraded = (
        tx.later("phase_rows_named", params),
        tx.later("phase_degraded_any", {"flow_id": flow_id}),
    )

    def read() -> LongFlowRows:
        ((is_degraded,),) = degraded.rows()
        return LongFlowRows([_phase(row) for row in rows.rows()], bool(is_degraded))

    return read


def phase_update_many(tx: Tx, phases: Sequence[PhaseRow]) -> None:
    """Write the current state of phases."""
    batch = [
        (
            p.gate_id, p.state, p.started_at, p.ended_at, p.probe_at, p.probe_again,
            p.waiting_since, p.tries, p.is_degraded, p.gate, p.evidence,
        )
        for p in phases
    ]  # fmt: skip
    tx.later("phase_update_many", batch=batch)


def phase_due(tx: Tx, n: int, aside: frozenset[int] = frozenset()) -> list[tuple[int, int | None]]:
    """Return (flow, gate) pairs due for a probe; gate None: the flow's deadline passed.

    Flows in `aside` are skipped; each may displace others from the result for at most a minute.
    """
    rows = tx.rows("phase_due", {"n": n + GATES_ASIDE * len(aside)})
    return [(row[0], row[1]) for row in rows if row[0] not in aside][: n if n == 1 else None]


def cascade_next_at(tx: Tx) -> tuple[int | None, int]:
    """Return (when the orchestrator has work next, now); in the past if it has work already."""
    due = cascade_next_later(tx)()
    times = [at for at in (due.flows_at, due.run_gates_at, due.items_at) if at is not None]
    return min(times, default=None), due.now


class NextDue(NamedTuple):
    """When flows, gates of single runs and expansions are next due, and the current time."""

    flows_at: int | None
    run_gates_at: int | None
    items_at: int | None
    now: int


def cascade_next_later(tx: Tx) -> Callable[[], NextDue]:
    """Send the query of `cascade_next_at`; the returned function waits for the result."""
    result = tx.later("cascade_next_at")

    def read() -> NextDue:
        ((*due, gates_at, items_at, now),) = result.rows()
        flows_at = min((at for at in due if at is not None), default=None)
        return NextDue(flows_at, gates_at, items_at, now)

    return read


def config_defaults(tx: Tx, ids: Sequence[int]) -> dict[int, ConfigDefaults]:
    """Return the settings that flows take from these configs."""
    rows = tx.rows("definition_of_config_list", {"ids": list(ids)})
    return {row[0]: ConfigDefaults._make(row)._replace(is_ordered=bool(row[5])) for row in rows}


def _phase(row: Sequence[Any]) -> PhaseRow:
    phase = PhaseRow._make(row)
    if not (phase.probe_again or phase.is_degraded):
        return phase
    return phase._replace(probe_again=bool(phase.probe_again), is_degraded=bool(phase.is_degraded))


def flow_of_row(row: Sequence[Any]) -> FlowRow:
    """Build a flow from a row of `flow_columns`."""
    flow = FlowRow._make(row)
    return flow._replace(
        no_downstream=bool(flow.no_downstream),
        is_degraded=bool(flow.is_degraded),
        is_ordered=bool(flow.is_ordered),
    )
