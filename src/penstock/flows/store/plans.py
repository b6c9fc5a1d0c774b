"""Plans of flows, parsed once per declaration and mode from the definition a flow was opened with.

A digest identifies one text forever, so parsed plans are cached for the life of the process. Pure
rules (`pipelines.plan`) do the parsing; the cascade, the client and `gate check` get plans from
here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from penstock.core.naming import PipelineKey
from penstock.db.store import Tx, first
from penstock.flows.plan import FlowPlan, planned_of
from penstock.flows.rows import FlowRow

PLANS_MAX: Final = 1_000
DIGEST_CHARS: Final = 64
"""Only full-length digests are cached, because only they identify one text."""


LONG_PHASES: Final = 50
"""Number of phases at which a flow counts as long."""
ProcessorKeys: TypeAlias = dict[tuple[int, str, str], tuple[int, str]]
"""Key and pool of processors by pipeline, phase and name."""

_cache: dict[tuple[str, str], FlowPlan] = {}
_processors: WeakKeyDictionary[Any, dict[str, ProcessorKeys]] = WeakKeyDictionary()
"""By store and digest. Keys never change, and a declaration with another pool has another digest;
but another database has other keys for it.
"""


_long_flows: dict[int, tuple[PipelineKey, FlowPlan]] = {}
"""Pipelines and plans of long flows that were evaluated here, by flow."""


def clear_cache() -> None:
    """Clear the caches, so that a simulated history issues the same queries every time."""
    _cache.clear()
    _processors.clear()
    _long_flows.clear()


def long_flow_plan(flow_id: int) -> tuple[PipelineKey, FlowPlan] | None:
    """Return pipeline and plan of a long flow that was evaluated before; None for any other."""
    return _long_flows.get(flow_id)


def long_flow_remember(flow: FlowRow, plan: FlowPlan) -> None:
    """Remember a flow whose next evaluation need not load all of its phases."""
    is_long = len(plan.plan.phases) >= LONG_PHASES
    if is_long and flow.flow_id not in _long_flows and plan.is_plain:
        if len(_long_flows) >= PLANS_MAX:
            _long_flows.clear()
        _long_flows[flow.flow_id] = (flow.pipeline_key, plan)


def processors_later(tx: Tx, flows: Iterable[FlowRow]) -> Callable[[], ProcessorKeys]:
    """Query the processors of flows unless cached; the returned function waits for the result."""
    wanted = {flow.digest: flow.pipeline_key for flow in flows}
    database = getattr(tx, "database", None)
    cached = {} if database is None else _processors.setdefault(database, {})
    unknown = {digest: key for digest, key in wanted.items() if digest not in cached}
    result = None
    if unknown:
        result = tx.later("processor_keys_list", {"ids": sorted(set(unknown.values()))})

    def read() -> ProcessorKeys:
        found: ProcessorKeys = {}
        for row in () if result is None else result.rows():
            found[row[0], row[1], row[2]] = (row[3], row[4])
        for digest, pipeline in unknown.items():
            if len(digest) == DIGEST_CHARS:
                if len(cached) >= PLANS_MAX:
                    cached.clear()
                cached[digest] = {k: v for k, v in found.items() if k[0] == pipeline}
        if not unknown and len(wanted) == 1:
            return cached[next(iter(wanted))]
        for digest in wanted:
            found.update(cached.get(digest, ()))
        return found

    return read


def planned(tx: Tx, pipeline_key: PipelineKey, digest: str, mode: str) -> FlowPlan:
    """Return the plan of a flow."""
    key = (digest, mode)
    found = _cache.get(key)
    if found is None:
        found = planned_of(definition_get(tx, pipeline_key, digest), mode)
        if len(digest) == DIGEST_CHARS:
            if len(_cache) >= PLANS_MAX:
                _cache.clear()
            _cache[key] = found
    return found


def definition_get(tx: Tx, pipeline_key: PipelineKey, digest: str) -> dict[str, Any]:
    """Return a declaration as it was when a flow was opened with it."""
    row = first(tx.rows("definition_get", {"pipeline": pipeline_key, "digest": digest}))
    assert row is not None, f"pipeline {pipeline_key} lost its declaration {digest}"
    return dict(json.loads(row[0]))
