"""Registration of declared pipelines: assigns numeric keys to names, once per changed declaration.

Every process registers its pipelines when it starts; an unchanged digest writes nothing. Processors
missing from a new declaration are retired, not deleted: workers that still have them can claim
their runs, so that a rolling deploy loses no run.

A changed declaration is refused if the configs and flows that use the pipeline would be unsafe
under it (`hooks.check_change`). An unchanged one is not checked: nothing that runs changes.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from penstock.access.store.registry import (
    pipeline_get,
    pipeline_put,
    pool_ensure,
    processor_list,
    processor_put,
)
from penstock.core.stored_json import dumps, to_json
from penstock.db.store import Tx
from penstock.pipelines.declare.incremental import entity_roles
from penstock.pipelines.declare.limit_needs import limit_needs_of
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.declare.processor import Processor
from penstock.pipelines.hooks import check_change, on_changed
from penstock.pipelines.parameters import defaults

ProcessorKeys: TypeAlias = dict[tuple[str, str], int]


def pipeline_register(tx: Tx, pipeline: Pipeline) -> ProcessorKeys:
    """Store the declaration if it changed. Return (phase, processor) → key.

    Raises DeclarationError if the declaration is inconsistent, and Conflict if it changed and does
    not fit the customers and configs that use the pipeline.
    """
    pipeline.check()
    digest = pipeline.digest
    stored = pipeline_get(tx, pipeline.name)
    if stored is not None and stored[1] == digest:
        known = {
            (row.phase, row.name): row.processor_key
            for row in processor_list(tx)
            if row.pipeline_key == stored[0]
        }
        return {(p.phase, p.name): known[p.phase, p.name] for p in pipeline.processors}
    definition = pipeline.definition()
    if stored is not None:
        check_change(tx, stored[0], json.loads(stored[2]), definition)
    rule = pipeline.terms.rule
    number = pipeline_put(
        tx,
        name=pipeline.name,
        digest=digest,
        definition=json.dumps(definition, sort_keys=True),
        has_flow=pipeline.has_flow,
        partition_rule=None if rule is None else dumps(rule),
    )
    entries, roles = pipeline.entry_processors(), entity_roles(definition)
    keys = {
        (p.phase, p.name): _processor_register(
            tx, number, pipeline, p, is_entry=p in entries, role=roles.get((p.phase, p.name), 0)
        )
        for p in pipeline.processors
    }
    if stored is not None:
        on_changed(tx, number, digest)
    return keys


def _processor_register(
    tx: Tx, number: int, pipeline: Pipeline, processor: Processor, *, is_entry: bool, role: int
) -> int:
    return processor_put(
        tx,
        {
            "pipeline": number,
            "phase": processor.phase,
            "name": processor.name,
            "pool": pool_ensure(tx, processor.pool),
            "is_entry": is_entry,
            "max_execution_us": processor.timeout_us or 0,
            "retry": None if processor.retry is None else json.dumps(dict(processor.retry)),
            "rate_second": pipeline.rate_second,
            "rate_gb": pipeline.rate_gb,
            "limits": limits_json(pipeline, processor),
            "endpoint": None
            if processor.terms.endpoint is None
            else dumps(processor.terms.endpoint),
            "expires_us": processor.terms.expires_us,
            "entity_role": role,
        },
    )


def limits_json(pipeline: Pipeline, processor: Processor) -> str | None:
    """Return the stored form of the limits that a processor's runs need; None if it needs none."""
    needs = limit_needs_of(processor.terms)
    if not needs:
        return None
    kept = {"needs": [to_json(need) for need in needs]}
    fills = defaults(pipeline.parameters)
    return json.dumps(kept if not fills else {**kept, "defaults": fills}, sort_keys=True)
