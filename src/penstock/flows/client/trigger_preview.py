"""Preview of a trigger (`--dry-run`): its mode and partition, and what happens to each phase.

Read-only. State may change between the preview and `client.flows.trigger`, which decides again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.access.store.names import NameResolver, check_sole_customer
from penstock.access.store.registry import customer_get
from penstock.core.errors import NotFound
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx
from penstock.flows.client.requests import check_request
from penstock.flows.client.target import TriggerTarget, trigger_target
from penstock.flows.explain.times import format_list
from penstock.flows.plan import planned_of
from penstock.flows.records import FlowPreview, FlowRequest, PhasePreview
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import generation_newest, phases_of
from penstock.pipelines.plan import Plan

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
            customer_id = self._names.customer_or_default(request.customer)
            check_sole_customer(tx, info, customer_get(tx, customer_id))
            number = self._customer(tx, customer_id)
            target = trigger_target(tx, info, request, number)
            existing = target.existing
            generation = 1
            if number is not None:
                key = (number, info.pipeline_key, target.config_id, target.partition, target.mode)
                generation = generation_newest(tx, key) + int(target.is_new)
            if existing is not None and not target.is_new:
                generation = existing.generation
            done: set[str] = set()
            if target.parent is not None:
                parent_id = target.parent.flow_id
                rows = phases_of(tx, [parent_id])[parent_id]
                done = {row.phase for row in rows if not row.processor and row.state in DONE}
            plan = planned_of(info.definition, target.mode).plan
            phases = _phases(plan, request, done) if target.is_new else []
            where = f"{request.pipeline} {target.partition} ({target.mode})"
            return FlowPreview(
                customer=customer_id,
                pipeline=request.pipeline,
                partition=target.partition,
                mode=target.mode,
                is_new=target.is_new,
                generation=generation,
                flow_id=None if existing is None else encode("flow", existing.flow_id),
                config_id=encode("cfg", target.config_id) if target.config_id else None,
                superseded=[encode("flow", older.flow_id) for older in target.superseded],
                text=_text(where, target, generation, phases),
                phases=phases,
            )

        return self._store.read(body)

    def _customer(self, tx: Tx, customer: str) -> CustomerKey | None:
        """Return the key of a customer; None if its first flow will create it."""
        try:
            return self._names.customer_key(tx, customer)
        except NotFound:
            if self._names.customer_id is not None:
                raise
            return None


def superseded_text(older: Sequence[FlowRow]) -> str:
    """Return a sentence about the effect of a new generation on older open ones."""
    named = [f"{encode('flow', one.flow_id)} (generation {one.generation})" for one in older]
    return (
        f"It supersedes {format_list(named, 20)}: it starts no more phases, and pending runs "
        "are cancelled. To keep it running, pass --keep-older."
    )


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


def _text(where: str, target: TriggerTarget, generation: int, phases: list[PhasePreview]) -> str:
    existing = target.existing
    if existing is not None and not target.is_new:
        return (
            f"{where} already exists, generation {existing.generation}, {existing.state}: nothing "
            "would be started. To run it again, pass --force; to start at a phase, name it."
        )
    by = {fate: [p.phase for p in phases if p.fate == fate] for fate in ("first", "follows")}
    text = f"{where} would be opened, generation {generation}: "
    text += f"the gate of {format_list(by['first'])} is evaluated first"
    text = f"{text}, then {format_list(by['follows'], 20)}." if by["follows"] else f"{text}."
    if target.config is not None:
        config = target.config
        named = f"{encode('cfg', config.config_id)} ({config.customer_id}, {config.pipeline})"
        text += f" It uses config {named}, with its parameters and time limits."
    return f"{text} {superseded_text(target.superseded)}" if target.superseded else text
