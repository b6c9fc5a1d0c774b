"""Blast radius of approving an intervention: its phase starts without the missing data."""

from __future__ import annotations

import json
import shlex

from penstock.access.store.names import NameResolver
from penstock.core.errors import NotFound
from penstock.core.ids import decode_or_not_found, encode
from penstock.db.store import Tx
from penstock.flows.explain.times import format_list
from penstock.flows.gates.rows import InterventionFilter
from penstock.flows.gates.store.overrides import intervention_list
from penstock.flows.plan import planned_of
from penstock.flows.store.flows import flow_get
from penstock.pipelines.modes import default_mode
from penstock.pipelines.plan import modes_of
from penstock.recovery.blast_radius import (
    NAMES_MAX,
    affected_by,
    blast_radius,
    listed_effect,
    slo_effects,
    work_effects,
)
from penstock.recovery.estimate import SAMPLES, weekday_estimate, weekday_of
from penstock.recovery.fates import phases_run
from penstock.recovery.records import BlastRadius
from penstock.recovery.store.backfills import phase_durations
from penstock.schedules.store.configs import config_get


def approval_impact(tx: Tx, names: NameResolver, intervention_id: str) -> BlastRadius:
    """Return the blast radius of approving an intervention."""
    number = decode_or_not_found("int", "intervention", intervention_id)
    wanted = InterventionFilter(names.customer_key(tx, None), None, number)
    item = next(iter(intervention_list(tx, wanted)), None)
    if item is None:
        raise NotFound("intervention", encode("int", number))
    info = names.pipeline(item.pipeline, "pipeline", tx)
    flow = flow_get(tx, item.flow_id) if item.flow_id > 0 else None
    mode = default_mode(modes_of(info.definition)).name if flow is None else flow.mode
    plan = planned_of(info.definition, mode).plan
    # The gate of a single run starts nothing but that run.
    is_alone = flow is None or flow.no_downstream
    phases = phases_run(plan, (item.phase,), no_downstream=is_alone)
    only = {(item.phase, item.processor)} if item.processor else None
    affected = affected_by(info.definition, plan, phases, only)
    samples = {} if flow is None else {
        name: phase_durations(tx, flow.customer_key, flow.pipeline_key, name, SAMPLES)
        for name in affected.phases
    }  # fmt: skip
    estimate = weekday_estimate(plan, affected.phases, samples, weekday_of(item.partition))
    config = None if flow is None else config_get(tx, flow.config_id)
    missing = json.loads(item.missing)
    without = format_list(missing, NAMES_MAX) or "what is missing"
    where = ".".join(part for part in (item.phase, item.processor) if part)
    effects = [
        *work_effects(affected, 1, estimate),
        *listed_effect(
            "changes", f"{where} starts without {without} and is degraded, as are later phases.",
            missing, count=max(1, len(missing)),
        ),
        *slo_effects(plan.mode.slo_us, None if config is None else config.sla_us, mode, estimate),
        *listed_effect(
            "undo", "The override can be revoked; phases it started continue.", [], count=1
        ),
    ]  # fmt: skip
    return blast_radius(
        f"{item.pipeline} {item.partition} ({mode}) continues with {where}, without {without}.",
        f"penstock interventions approve {shlex.quote(encode('int', number))} --reason …",
        effects,
        affected=affected,
        flows=1,
        estimate=estimate,
    )
