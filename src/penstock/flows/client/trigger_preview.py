"""What a trigger would do, without doing it: which mode and partition, which phases, which fate.

Reads only; asked before `flows.trigger` by whoever wants to know first (`--dry-run`). Between the
look and the deed things may change: the trigger decides anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.access.store.names import Names
from penstock.core.errors import NotFound
from penstock.db.store import Store, Tx
from penstock.flows.client.requests import FlowRequest, checked_request
from penstock.flows.explain.store.reads import generation_newest
from penstock.flows.explain.times import listed
from penstock.flows.store.flows import Flow, flow_find, phases_of
from penstock.flows.store.from_schedule import mode_and_partition
from penstock.flows.store.plans import planned_of
from penstock.pipelines.plan import Plan

DONE = ("COMPLETE", "DEGRADED")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePreview:
    """A phase and its fate: first, follows, inherited or skipped."""

    phase: str
    fate: str
    processors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPreview:
    """What a trigger would do, also in a sentence; flow_id: the flow that is there."""

    customer: str
    pipeline: str
    partition: str
    mode: str
    is_new: bool
    generation: int
    flow_id: int | None
    text: str
    phases: tuple[PhasePreview, ...] = ()


class Previews:
    """Use cases that look ahead."""

    def __init__(self, store: Store, names: Names) -> None:
        self._store = store
        self._names = names

    def trigger(self, request: FlowRequest) -> FlowPreview:
        """What `flows.trigger` would do with this request now."""

        def body(tx: Tx) -> FlowPreview:
            info = self._names.pipeline(request.pipeline, "pipeline", tx)
            checked_request(info, request)
            whose = request.customer or self._names.default_customer
            mode, partition = mode_and_partition(
                info.definition,
                tx.now(),
                mode=request.mode,
                backfill=request.backfill,
                source=request.source,
            )
            partition = request.partition or partition
            there = self._there(tx, whose, info.number, partition, mode)
            any_mode = self._there(tx, whose, info.number, partition, None)
            is_new = there is None or request.force or bool(request.phases)
            generation = 1 if there is None else generation_newest(tx, there) + int(is_new)
            parent = (there or any_mode) if request.phases else None
            done: set[str] = set()
            if parent is not None:
                rows = phases_of(tx, [parent.flow_id])[parent.flow_id]
                done = {row.phase for row in rows if not row.processor and row.state in DONE}
            plan = planned_of(info.definition, mode).plan
            phases = _phases(plan, request, done) if is_new else ()
            where = f"{request.pipeline} {partition} ({mode})"
            return FlowPreview(
                customer=whose,
                pipeline=request.pipeline,
                partition=partition,
                mode=mode,
                is_new=is_new,
                generation=generation,
                flow_id=None if there is None else there.flow_id,
                text=_text(where, there, generation, phases, is_new=is_new),
                phases=phases,
            )

        return self._store.read(body)

    def _there(
        self, tx: Tx, customer: str, pipeline: int, partition: str, mode: str | None
    ) -> Flow | None:
        try:
            number = self._names.customer(tx, customer)
        except NotFound:
            if self._names.customer_id is not None:
                raise
            return None  # a customer is made by its first flow
        assert number is not None
        return flow_find(tx, number, pipeline, partition, mode)


def _phases(plan: Plan, request: FlowRequest, done: set[str]) -> tuple[PhasePreview, ...]:
    begins = tuple(request.phases) or tuple(p.name for p in plan.phases if not p.after)
    behind = {later for name in begins for later in plan.downstream(name)}
    found = []
    for phase in plan.phases:
        fate = "skipped"
        if phase.name in begins:
            fate = "first"
        elif phase.name in behind and not request.no_downstream:
            fate = "follows"
        elif phase.name in done and phase.name not in behind:
            fate = "inherited"
        found.append(PhasePreview(phase=phase.name, fate=fate, processors=phase.expected))
    found += [PhasePreview(phase=name, fate="skipped") for name in plan.skipped]
    return tuple(found)


def _text(
    where: str,
    there: Flow | None,
    generation: int,
    phases: tuple[PhasePreview, ...],
    *,
    is_new: bool,
) -> str:
    if not is_new:
        assert there is not None
        return (
            f"{where} is there already, generation {there.generation}, {there.state}: nothing "
            "would be started. To run it again: --force; to start at a phase: name it."
        )
    by = {fate: [p.phase for p in phases if p.fate == fate] for fate in ("first", "follows")}
    said = f"{where} would be opened, generation {generation}: "
    said += f"the gate of {listed(by['first'])} is asked first"
    return f"{said}, then {listed(by['follows'], 20)}." if by["follows"] else f"{said}."
