"""Plans of flows, parsed once per declaration and mode from the definition a flow was opened with.

A digest identifies one text forever, so parsed plans are cached for the life of the process. Pure
rules (`pipelines.plan`) do the parsing; the cascade, the client and `gate check` get plans from
here.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.core.naming import PipelineKey
from penstock.db.store import Tx, first
from penstock.flows.plan import FlowPlan, planned_of

PLANS_MAX: Final = 1_000
DIGEST_CHARS: Final = 64
"""Only full-length digests are cached, because only they identify one text."""


_cache: dict[tuple[str, str], FlowPlan] = {}


def clear_cache() -> None:
    """Clear the cache, so that a simulated history issues the same queries every time."""
    _cache.clear()


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
