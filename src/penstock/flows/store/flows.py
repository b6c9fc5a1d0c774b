"""Flows and their phases: open, lock, read, write, end.

A flow is opened once per (customer, pipeline, config, partition, mode, generation); generation
numbers outlive pruning. Whoever changes a flow locks its row first (`flow_lock_many`, in order of
ids) and reads the rest after that. What may follow what is decided by `core.cascade`, not here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from penstock.db.store import Tx, first
from penstock.flows.phases import ENDED, PhaseState

FAR_FUTURE: Final = 2**62
LATE_DATA: Final = "late_data"
"""The trigger source of a generation that late data started."""


class Flow(NamedTuple):
    """A flow (SQL fragment `flow_columns`)."""

    flow_id: int
    customer: int
    customer_id: str
    pipeline_no: int
    pipeline: str
    config_id: int
    partition: str
    mode: str
    generation: int
    state: str
    correlation_id: str
    trigger_source: str
    created_at: int
    ended_at: int | None
    digest: str
    start_phase: str | None
    parent_flow_id: int | None
    deadline_at: int | None
    no_downstream: bool
    is_degraded: bool
    missing: str
    slot: int
    start_at: int | None
    start_gap: int
    priority: int
    is_ordered: bool
    parameters: str | None
    opened_by: str
    message_id: str | None = None
    """The message that opened it."""

    @property
    def key(self) -> tuple[int, int, int, str, str]:
        """What its generations have in common."""
        return self.customer, self.pipeline_no, self.config_id, self.partition, self.mode

    @property
    def place(self) -> tuple[int, int, str]:
        """What its breakers belong to: customer, pipeline, partition."""
        return self.customer, self.pipeline_no, self.partition

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.ended_at is None


class Locked(NamedTuple):
    """A locked flow, and whether approvals or breakers have to be read for it."""

    flow: Flow
    has_overrides: bool
    has_breakers: bool
    now: int
    """When it was locked: what is judged after that is judged by this time."""
    behind: int | None = None
    """The earlier flow of its config whose end it waits for."""


class NewFlow(NamedTuple):
    """A flow to be opened (batch of `flow_insert_many`)."""

    customer: int
    pipeline: int
    config_id: int
    partition: str
    mode: str
    generation: int
    correlation_id: str
    trigger_source: str
    digest: str
    start_phase: str | None = None
    parent_flow_id: int | None = None
    deadline_at: int | None = None
    no_downstream: bool = False
    slot: int = 0
    start_at: int | None = None
    start_gap: int = 0
    priority: int = 5
    is_ordered: bool = False
    parameters: str | None = None
    opened_by: str = "scheduler"
    message_id: str | None = None
    subscription: str | None = None

    @property
    def key(self) -> tuple[int, int, int, str, str]:
        """What its generations have in common."""
        return self.customer, self.pipeline, self.config_id, self.partition, self.mode


class NewPhase(NamedTuple):
    """A phase, or a processor's gate, of a new flow (batch of `phase_insert_many`)."""

    flow_id: int
    customer: int
    phase: str
    processor: str = ""
    state: str = PhaseState.PENDING.value
    started_at: int | None = None
    ended_at: int | None = None
    look_at: int | None = None
    is_degraded: bool = False
    gate: str | None = None


class Phase(NamedTuple):
    """A phase of a flow, or the gate of one processor in it."""

    flow_id: int
    gate_id: int
    phase: str
    processor: str
    state: str
    since_at: int
    started_at: int | None
    ended_at: int | None
    look_at: int | None
    look_again: bool
    waiting_since: int | None
    tries: int
    is_degraded: bool
    gate: str | None
    evidence: str | None

    @property
    def told(self) -> dict[str, Any]:
        """What its gate said, as its runs get it; empty when there was nothing to say."""
        return {} if self.gate is None else dict(json.loads(self.gate))

    @property
    def is_ended(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self.state in ENDED


class OfConfig(NamedTuple):
    """What a scheduled flow takes over from its config."""

    config_id: int
    customer: int
    pipeline: int
    digest: str
    priority: int
    is_ordered: bool
    max_execution_us: int
    sla_us: int
    offset_us: int


def generation_next_many(
    tx: Tx, keys: Iterable[tuple[int, int, int, str, str]], *, reruns: int = 0
) -> dict[tuple[int, int, int, str, str], int]:
    """Count up the generation of each key; a second opener of a key waits for the first."""
    batch = [(*key, reruns) for key in sorted(set(keys))]
    found = tx.rows("generation_next_many", batch=batch)
    return {(row[0], row[1], row[2], row[3], row[4]): row[5] for row in found}


def generation_get(tx: Tx, key: tuple[int, int, int, str, str]) -> tuple[int, int]:
    """(newest generation, reruns by late data) of a key, locked; (0, 0) when there is none."""
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


def flow_insert_many(tx: Tx, flows: Sequence[NewFlow]) -> dict[tuple[Any, ...], int]:
    """Open flows; (key, generation) → id of those that are new."""
    found = tx.rows("flow_insert_many", batch=flows)
    return {(*row[1:6], row[6]): row[0] for row in found}


def phase_insert_many(tx: Tx, phases: Sequence[NewPhase]) -> None:
    """Write down the phases of new flows."""
    tx.later("phase_insert_many", batch=phases)


def flow_lock_many(tx: Tx, ids: Iterable[int]) -> list[Locked]:
    """Lock flows in order; read whatever else belongs to them after this."""
    return flow_lock_ask(tx, ids)()


def flow_lock_ask(tx: Tx, ids: Iterable[int]) -> Callable[[], list[Locked]]:
    """Like `flow_lock_many`; what is asked for behind it may travel with it."""
    answer = tx.later("flow_lock_many", {"ids": sorted(set(ids))})
    return lambda: [
        Locked(_flow(row[:-4]), bool(row[-4]), bool(row[-3]), *row[-2:]) for row in answer.rows()
    ]


def flow_get(tx: Tx, flow_id: int, customer: int | None = None) -> Flow | None:
    """One flow, optionally only within a customer."""
    row = first(tx.rows("flow_get", {"flow_id": flow_id, "customer": customer}))
    return None if row is None else _flow(row)


def flow_find(
    tx: Tx, customer: int, pipeline: int, partition: str, mode: str | None = None
) -> Flow | None:
    """The newest flow of a partition, an open one if there is any."""
    params = {"customer": customer, "pipeline": pipeline, "partition": partition, "mode": mode}
    row = first(tx.rows("flow_find", params))
    return None if row is None else _flow(row)


class FlowFilter(NamedTuple):
    """Which flows a list shows; `before` continues an earlier page."""

    customer: int | None = None
    pipeline: int | None = None
    partition: str | None = None
    mode: str | None = None
    state: str | None = None
    before: int = FAR_FUTURE
    limit: int = 50


def flow_list(tx: Tx, wanted: FlowFilter) -> list[Flow]:
    """Flows, newest first."""
    return [_flow(row) for row in tx.rows("flow_list", wanted._asdict())]


def flow_for_correlation(tx: Tx, correlation_id: str, customer: int | None = None) -> list[Flow]:
    """The flows of one cause, oldest first."""
    params = {"correlation_id": correlation_id, "customer": customer}
    return [_flow(row) for row in tx.rows("flow_for_correlation", params)]


def flow_end_many(tx: Tx, rows: Sequence[tuple[int, str, bool, str, bool]]) -> None:
    """Write (flow, state, is_degraded, missing, is_ended)."""
    tx.later("flow_end_many", batch=rows)


def flow_open_of_config(tx: Tx, config_id: int) -> int | None:
    """A flow of a config that has not ended, if there is any."""
    row = first(tx.rows("flow_open_of_config", {"config_id": config_id}))
    return None if row is None else int(row[0])


def flow_lock_open(tx: Tx, configs: Sequence[int]) -> None:
    """Lock the open flows of configs, so that their ends and what is opened meet in order."""
    tx.rows("flow_lock_open", {"ids": sorted(set(configs))})


def flow_in_line(tx: Tx, config_id: int) -> int | None:
    """A flow of a config that waits for an earlier one to end, if there is any."""
    row = first(tx.rows("flow_in_line", {"config_id": config_id}))
    return None if row is None else int(row[0])


def flow_behind(tx: Tx, flow_id: int) -> int | None:
    """The earlier flow of its config that a flow waits for, if it has to."""
    row = first(tx.rows("flow_behind", {"flow_id": flow_id}))
    return None if row is None else row[0]


def flow_runs_live(tx: Tx, flow_id: int) -> list[tuple[int, str, int]]:
    """(run, state, processor) of a flow's runs that have not ended."""
    return [(row[0], row[1], row[2]) for row in tx.rows("flow_runs_live", {"flow_id": flow_id})]


def phases_of(tx: Tx, ids: Sequence[int]) -> dict[int, list[Phase]]:
    """The phases of flows, in the order in which they were written down."""
    return phases_ask(tx, ids)()


def phases_ask(tx: Tx, ids: Sequence[int]) -> Callable[[], dict[int, list[Phase]]]:
    """Like `phases_of`, without waiting for the answer."""
    answer = tx.later("phase_rows_for_flows", {"ids": list(ids)})

    def read() -> dict[int, list[Phase]]:
        found: dict[int, list[Phase]] = {flow_id: [] for flow_id in ids}
        for row in answer.rows():
            phase = Phase._make(row)
            lively = phase._replace(
                look_again=bool(phase.look_again), is_degraded=bool(phase.is_degraded)
            )
            found[phase.flow_id].append(lively)
        return found

    return read


def phase_update_many(tx: Tx, phases: Sequence[Phase]) -> None:
    """Write phases as they stand now."""
    batch = [
        (
            p.gate_id, p.state, p.started_at, p.ended_at, p.look_at, p.look_again,
            p.waiting_since, p.tries, p.is_degraded, p.gate, p.evidence,
        )
        for p in phases
    ]  # fmt: skip
    tx.later("phase_update_many", batch=batch)


def phase_due(tx: Tx, n: int) -> list[tuple[int, int | None]]:
    """(flow, gate) that somebody has to look at by now; no gate: the flow's deadline passed."""
    return [(row[0], row[1]) for row in tx.rows("phase_due", {"n": n})]


def cascade_next_at(tx: Tx) -> tuple[int | None, int]:
    """When the orchestrator has something to do (the past when it has now), and the time."""
    return cascade_next_ask(tx)()


def cascade_next_ask(tx: Tx) -> Callable[[], tuple[int | None, int]]:
    """Like `cascade_next_at`, without waiting for the answer."""
    answer = tx.later("cascade_next_at")

    def read() -> tuple[int | None, int]:
        ((*due, now),) = answer.rows()
        return min((at for at in due if at is not None), default=None), now

    return read


def of_configs(tx: Tx, ids: Sequence[int]) -> dict[int, OfConfig]:
    """What flows of these configs take over from them."""
    rows = tx.rows("definition_of_config_list", {"ids": list(ids)})
    return {row[0]: OfConfig._make(row)._replace(is_ordered=bool(row[5])) for row in rows}


def processors_ask(
    tx: Tx, pipelines: Iterable[int]
) -> Callable[[], dict[tuple[int, str, str], tuple[int, str]]]:
    """(number, pool) of processors by (pipeline, phase, name), without waiting for the answer."""
    answer = tx.later("processor_numbers_list", {"ids": sorted(set(pipelines))})
    return lambda: {(row[0], row[1], row[2]): (row[3], row[4]) for row in answer.rows()}


def _flow(row: Sequence[Any]) -> Flow:
    flow = Flow._make(row)
    return flow._replace(
        no_downstream=bool(flow.no_downstream),
        is_degraded=bool(flow.is_degraded),
        is_ordered=bool(flow.is_ordered),
    )
