"""Replays of flows: part of a flow runs again, in a new generation.

Functions over a transaction; a dry run makes the same choices and checks as the replay itself.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.access.store.names import NameResolver, PipelineInfo, check_sole_customer
from penstock.access.store.registry import customer_get
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.errors import Conflict, InvalidInput
from penstock.core.ids import encode, new_correlation_id
from penstock.core.naming import DEFAULT_CUSTOMER, CustomerKey
from penstock.db.store import Transactions, Tx
from penstock.entities.report import report_from
from penstock.entities.rows import NewInput
from penstock.entities.store import inputs_choose
from penstock.flows.client.closing import flow_close
from penstock.flows.client.opening import TriggerResult, digest_of, flow_start
from penstock.flows.client.requests import check_request, request_parameters
from penstock.flows.client.target import TriggerTarget, trigger_target
from penstock.flows.phases import DONE
from penstock.flows.plan import FlowPlan, planned_of
from penstock.flows.records import BY_REPLAY, FlowRequest
from penstock.flows.rows import REPLAY
from penstock.flows.store.completions import completions_of
from penstock.flows.store.create import FlowOpening, flow_open_many, opening_lock
from penstock.flows.store.flows import flow_get, generation_newest, phases_of
from penstock.recovery.blast_radius import (
    Affected,
    affected_by,
    blast_radius,
    listed_effect,
    slo_effects,
    work_effects,
)
from penstock.recovery.client.backfill_start import customer_key_of
from penstock.recovery.estimate import SAMPLES, PhaseDuration, weekday_estimate, weekday_of
from penstock.recovery.fates import phases_run
from penstock.recovery.records import BlastRadius, FlowReplay
from penstock.recovery.store.backfills import phase_durations
from penstock.schedules.store.overlap import free_occurrence


class ChosenReplay(NamedTuple):
    """A resolved request to replay."""

    info: PipelineInfo
    customer_id: str
    customer_key: CustomerKey | None
    target: TriggerTarget
    plan: FlowPlan
    starts: tuple[str, ...]
    """Phases that it starts with; empty for the entry phases."""
    only: frozenset[tuple[str, str]]
    affected: Affected
    generation: int


def replay_choose(tx: Tx, names: NameResolver, request: FlowReplay) -> ChosenReplay:
    """Check a request and resolve it."""
    info = names.pipeline(request.pipeline, "pipeline", tx)
    customer_id = names.customer_or_default(request.customer)
    key = customer_key_of(tx, names, customer_id)
    check_sole_customer(tx, info, customer_get(tx, customer_id))
    only = _processors(info, request)
    starts = (request.phase,) if request.phase else tuple(sorted({phase for phase, _ in only}))
    wanted = _flow_request(request, starts)
    check_request(info, wanted)
    if key is not None:
        opening_lock(tx, key, info.pipeline_key, request.partition)
    target = trigger_target(tx, info, wanted, key, source=REPLAY)
    plan = planned_of(info.definition, target.mode)
    unknown = [name for name in starts if not plan.plan.has_phase(name)]
    if unknown:
        raise InvalidInput("phase", f"a phase that mode {target.mode} runs", unknown[0])
    if request.entities is not None:
        _check_entities(plan, request, only)
    phases = phases_run(plan.plan, starts, no_downstream=request.no_downstream)
    affected = affected_by(info.definition, plan.plan, phases, only or None)
    if not request.force:
        _check_undone(tx, request, target, affected)
    generation = 1
    if key is not None:
        about = (key, info.pipeline_key, target.config_id, target.partition, target.mode)
        generation = generation_newest(tx, about) + 1
    return ChosenReplay(info, customer_id, key, target, plan, starts, only, affected, generation)


def replay_impact(tx: Tx, request: FlowReplay, chosen: ChosenReplay) -> BlastRadius:
    """Return the blast radius of a replay."""
    plan, affected, target = chosen.plan.plan, chosen.affected, chosen.target
    samples: dict[str, Sequence[PhaseDuration]] = {}
    if chosen.customer_key is not None:
        about = (chosen.customer_key, chosen.info.pipeline_key)
        samples = {name: phase_durations(tx, *about, name, SAMPLES) for name in affected.phases}
    weekday = weekday_of(target.partition)
    estimate = weekday_estimate(plan, affected.phases, samples, weekday)
    older = [encode("flow", one.flow_id) for one in target.superseded]
    sla_us = None if target.config is None else target.config.sla_us
    where = f"{chosen.info.name} {target.partition} ({target.mode})"
    begins = ", ".join(chosen.starts) or "the beginning"
    text = f"{where} runs again from {begins}, as generation {chosen.generation}."
    effects = [
        *work_effects(affected, 1, estimate),
        *listed_effect(
            "supersedes", "Flows in progress start no more phases; pending runs are cancelled.",
            older,
        ),
        *slo_effects(plan.mode.slo_us, sla_us, target.mode, estimate),
        *listed_effect(
            "undo", "The new flow can be cancelled; written data is kept.", [], count=1
        ),
    ]  # fmt: skip
    if request.entities is not None:
        counts = {kind: len(ids) for kind, ids in request.entities.items()}
        chosen_text = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        effects[1:1] = listed_effect(
            "changes", f"Incremental processors receive only {chosen_text}.", list(counts)
        )
    return blast_radius(
        text, _command(request), effects, affected=affected, flows=1, estimate=estimate
    )


def replay_open(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    request: FlowReplay,
    chosen: ChosenReplay,
    who: str,
) -> TriggerResult:
    """Open the new generation and start its ready phases."""
    info, target = chosen.info, chosen.target
    key = names.ensure_customer_keys(tx, [chosen.customer_id])[chosen.customer_id]
    names.use_pipeline(tx, info, key)
    parent = target.existing
    wanted = _flow_request(request, chosen.starts)
    reason = f": {request.reason}" if request.reason else ""
    opening = FlowOpening(
        customer_key=key,
        pipeline_key=info.pipeline_key,
        digest=digest_of(tx, info),
        mode=target.mode,
        partition=target.partition,
        source=REPLAY,
        correlation_id=new_correlation_id() if parent is None else parent.correlation_id,
        opened_by=who,
        config_id=target.config_id,
        occurrence_time=None if target.config is None else free_occurrence(tx, target.config),
        priority=request.priority,
        parameters=request_parameters(info, wanted, target.config)
        or (None if parent is None else parent.parameters),
        start_phases=chosen.starts,
        parent=(target.parent or parent) if chosen.starts else None,
        no_downstream=request.no_downstream,
        by_hand=True,
        only=chosen.only,
    )
    superseded = []
    for older in target.superseded:
        why = f"{BY_REPLAY} {who} requested{reason}"
        if flow_close(tx, older.flow_id, who, why, stops_running=request.force) is not None:
            superseded.append(older.flow_id)
    (flow_id,) = flow_open_many(tx, [opening])
    assert flow_id is not None, "the next generation is always new"
    journal_append_many(tx, [_entry(flow_id, key, request, chosen, who)])
    if request.entities is not None:
        inputs_choose(tx, _inputs(flow_id, opening, chosen, request.entities))
    run_ids = flow_start(tx, store, info, flow_id, who)
    flow = flow_get(tx, flow_id)
    assert flow is not None
    return TriggerResult(
        flow,
        is_new=True,
        run_ids=tuple(run_ids),
        superseded=tuple(superseded),
    )


def _entry(
    flow_id: int, key: CustomerKey, request: FlowReplay, chosen: ChosenReplay, who: str
) -> Entry:
    """Return the journal entry of a user's request and its reason."""
    detail = {
        "from": list(chosen.starts),
        "processors": sorted(f"{phase}.{name}" for phase, name in chosen.only),
        "entities": {kind: len(ids) for kind, ids in (request.entities or {}).items()},
        "force": request.force,
    }
    why = request.reason or None
    return Entry("flow", flow_id, key, "replayed", who, None, None, None, why, json.dumps(detail))


def _processors(info: PipelineInfo, request: FlowReplay) -> frozenset[tuple[str, str]]:
    """Return the phase and the name of each processor that a request names."""
    known = [(row.phase, row.name) for row in info.processors if row.is_current]
    found = set()
    for text in request.processors:
        named = [
            one
            for one in known
            if text in (one[1], f"{one[0]}.{one[1]}") and request.phase in (None, one[0])
        ]
        if len(named) != 1:
            listed = ", ".join(f"{phase}.{name}" for phase, name in known)
            raise InvalidInput("processors", f"one of {listed}", text)
        found.add(named[0])
    return frozenset(found)


def _check_undone(tx: Tx, request: FlowReplay, target: TriggerTarget, affected: Affected) -> None:
    """Raise Conflict if everything has completed, or some of it is in progress."""
    flow = target.existing
    if flow is None:
        return
    where = f"{flow.pipeline} {flow.partition} ({encode('flow', flow.flow_id)})"
    states = {row.phase: row.state for row in phases_of(tx, [flow.flow_id])[flow.flow_id]
              if not row.processor}  # fmt: skip
    running = [name for name in affected.phases if states.get(name) == "IN_PROGRESS"]
    if running:
        raise Conflict(
            f"{where}: {', '.join(running)} is in progress. Wait for it, or pass force (--force): "
            "the flow is superseded and its runs are asked to stop."
        )
    done = {(one.phase, one.processor) for one in completions_of(tx, [flow.flow_id])[flow.flow_id]
            if one.status == "success"}  # fmt: skip
    complete = all(states.get(name) in DONE and states[name] == "COMPLETE"
                   for name in affected.phases)  # fmt: skip
    if request.processors:
        complete = all(one in done for one in affected.processors if one[0] in affected.phases[:1])
    if complete and request.entities is None:
        raise Conflict(
            f"{where}: everything to repeat has completed. To repeat it anyway, pass force "
            "(--force)."
        )


def _check_entities(plan: FlowPlan, request: FlowReplay, only: frozenset[tuple[str, str]]) -> None:
    """Raise InvalidInput unless all processors that a replay starts with accept these entities."""
    assert request.entities is not None
    report_from(request.entities)
    for key in _incremental(plan, request.phase, only):
        kinds = plan.incremental[key].kinds if key in plan.incremental else None
        if kinds is None:
            fix = "Name incremental processors with --processor."
            name = ".".join(key)
            raise InvalidInput("entities", "incremental processors to start with", name, fix)
        unknown = [kind for kind in request.entities if kinds and kind not in kinds]
        if unknown:
            expected = f"kinds that {key[1]} receives ({', '.join(kinds)})"
            raise InvalidInput("entities", expected, unknown[0])


def _incremental(
    plan: FlowPlan, phase: str | None, only: frozenset[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the processors that a replay starts with."""
    if only:
        return sorted(only)
    begins = [phase] if phase else [one.name for one in plan.plan.phases if not one.after]
    return [(name, one) for name in begins for one in plan.plan.phase(name).expected]


def _inputs(
    flow_id: int,
    opening: FlowOpening,
    chosen: ChosenReplay,
    entities: Mapping[str, Sequence[str | int]],
) -> list[NewInput]:
    """Return the inputs of the first processors of a replay."""
    keys = {(row.phase, row.name): row.processor_key for row in chosen.info.processors}
    phase = chosen.starts[0] if chosen.starts else None
    made = []
    for one in _incremental(chosen.plan, phase, chosen.only):
        plan = chosen.plan.incremental[one]
        made.append(
            NewInput(
                flow_id,
                keys[one],
                opening.customer_key,
                opening.pipeline_key,
                opening.config_id,
                opening.partition if plan.is_per_partition else "",
                0,
                plan.signature,
                json.dumps(plan.kinds),
                "[]",
                None,
                False,
                json.dumps(entities),
            )
        )
    return made


def _flow_request(request: FlowReplay, starts: Sequence[str]) -> FlowRequest:
    return FlowRequest(
        pipeline=request.pipeline,
        customer=request.customer,
        partition=request.partition,
        mode=request.mode,
        phases=list(starts),
        config=request.config,
        force=True,
        no_downstream=request.no_downstream,
        parameters=request.parameters,
        priority=request.priority,
    )


def _command(request: FlowReplay) -> str:
    """Return the command that starts a replay."""
    parts = ["replay", request.pipeline, request.partition]
    parts += ["--from", request.phase] if request.phase else []
    for name in request.processors:
        parts += ["--processor", name]
    for kind, ids in (request.entities or {}).items():
        for one in ids:
            parts += ["--entity", f"{kind}:{one}"]
    if request.customer not in (None, DEFAULT_CUSTOMER):
        parts += ["--customer", str(request.customer)]
    for option, value in (("--config-id", request.config), ("--mode", request.mode)):
        parts += [option, value] if value is not None else []
    parts += ["--force"] if request.force else []
    parts += ["--no-downstream"] if request.no_downstream else []
    return " ".join(["penstock", *(shlex.quote(part) for part in parts)])
