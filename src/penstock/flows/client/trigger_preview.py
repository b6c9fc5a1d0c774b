"""Preview of a trigger (`--dry-run`): its mode and partition, and what becomes of each phase.

Read-only. State may change between the preview and `client.flows.trigger`, which decides again.
"""

from __future__ import annotations

from typing import Literal

from penstock.access.store.names import NameResolver, check_sole_customer
from penstock.access.store.registry import customer_get
from penstock.core.errors import NotFound
from penstock.core.ids import encode
from penstock.core.naming import PipelineKey
from penstock.db.store import Transactions, Tx
from penstock.flows.client.requests import check_request
from penstock.flows.explain.store.reads import generation_newest
from penstock.flows.explain.times import format_list
from penstock.flows.plan import planned_of
from penstock.flows.records import FlowPreview, FlowRequest, PhasePreview
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import flow_find, phases_of
from penstock.pipelines.plan import Plan, mode_and_partition

DONE = ("COMPLETE", "DEGRADED")


class Previews:
    """Use cases that preview a change."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def trigger(self, request: FlowRequest) -> FlowPreview:
        """Return what a trigger would do. Nothing is changed."""

        def body(tx: Tx) -> FlowPreview:
            info = self._names.pipeline(request.pipeline, "pipeline", tx)
            check_request(info, request)
            customer_id = request.customer or self._names.default_customer
            check_sole_customer(tx, info, customer_get(tx, customer_id))
            mode, partition = mode_and_partition(
                info.definition,
                tx.now(),
                mode=request.mode,
                backfill=request.backfill,
            )
            partition = request.partition or partition
            existing = self._existing(tx, customer_id, info.pipeline_key, partition, mode)
            any_mode = self._existing(tx, customer_id, info.pipeline_key, partition, None)
            is_new = existing is None or request.force or bool(request.phases)
            generation = 1 if existing is None else generation_newest(tx, existing) + int(is_new)
            parent = (existing or any_mode) if request.phases else None
            done: set[str] = set()
            if parent is not None:
                rows = phases_of(tx, [parent.flow_id])[parent.flow_id]
                done = {row.phase for row in rows if not row.processor and row.state in DONE}
            plan = planned_of(info.definition, mode).plan
            phases = _phases(plan, request, done) if is_new else []
            where = f"{request.pipeline} {partition} ({mode})"
            return FlowPreview(
                customer=customer_id,
                pipeline=request.pipeline,
                partition=partition,
                mode=mode,
                is_new=is_new,
                generation=generation,
                flow_id=None if existing is None else encode("flow", existing.flow_id),
                text=_text(where, existing, generation, phases, is_new=is_new),
                phases=phases,
            )

        return self._store.read(body)

    def _existing(
        self, tx: Tx, customer: str, pipeline_key: PipelineKey, partition: str, mode: str | None
    ) -> FlowRow | None:
        try:
            number = self._names.customer_key(tx, customer)
        except NotFound:
            if self._names.customer_id is not None:
                raise
            return None  # the first flow of a customer creates the customer
        assert number is not None
        return flow_find(tx, number, pipeline_key, partition, mode)


def _phases(plan: Plan, request: FlowRequest, done: set[str]) -> list[PhasePreview]:
    begins = tuple(request.phases) or tuple(p.name for p in plan.phases if not p.after)
    behind = {later for name in begins for later in plan.downstream(name)}
    found = []
    for phase in plan.phases:
        fate: Literal["first", "follows", "inherited", "skipped"] = "skipped"
        if phase.name in begins:
            fate = "first"
        elif phase.name in behind and not request.no_downstream:
            fate = "follows"
        elif phase.name in done and phase.name not in behind:
            fate = "inherited"
        found.append(PhasePreview(phase=phase.name, fate=fate, processors=list(phase.expected)))
    found += [PhasePreview(phase=name, fate="skipped", processors=[]) for name in plan.skipped]
    return found


def _text(
    where: str,
    existing: FlowRow | None,
    generation: int,
    phases: list[PhasePreview],
    *,
    is_new: bool,
) -> str:
    if not is_new:
        assert existing is not None
        return (
            f"{where} already exists, generation {existing.generation}, {existing.state}: nothing "
            "would be started. To run it again, pass --force; to start at a phase, name it."
        )
    by = {fate: [p.phase for p in phases if p.fate == fate] for fate in ("first", "follows")}
    text = f"{where} would be opened, generation {generation}: "
    text += f"the gate of {format_list(by['first'])} is evaluated first"
    return f"{text}, then {format_list(by['follows'], 20)}." if by["follows"] else f"{text}."
