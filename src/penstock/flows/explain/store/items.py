"""Facts about the items of a flow: counts, kinds of errors and the first failures."""

from __future__ import annotations

from typing import Final

from penstock.db.store import Tx
from penstock.flows.explain.facts import ItemsFact
from penstock.flows.items.fan_in import quorum
from penstock.flows.items.store.expansions import expansions_of
from penstock.flows.items.store.reads import ItemFilter, item_errors, item_list
from penstock.flows.plan import FlowPlan

FIRST_FAILURES: Final = 3
"""Maximum number of failed items listed per processor."""


def item_facts(tx: Tx, flow_id: int, plan: FlowPlan) -> dict[tuple[str, str], ItemsFact]:
    """Return the counts of a flow's items by phase and processor."""
    if not plan.fan_outs:
        return {}
    found = {}
    for row in expansions_of(tx, [flow_id])[flow_id]:
        fan_out = plan.fan_outs.get((row.phase, row.processor))
        if fan_out is None:
            continue
        wanted = ItemFilter(flow_id, row.processor_key, "failed", limit=FIRST_FAILURES)
        found[row.phase, row.processor] = ItemsFact(
            state=row.state,
            total=row.total,
            created=row.created,
            done=row.done,
            failed=row.failed,
            required=quorum(row.total, fan_out.min_items),
            error=row.error,
            errors=tuple(item_errors(tx, flow_id, row.processor_key, FIRST_FAILURES)),
            first_failed=tuple(item.item_key for item in item_list(tx, wanted)),
        )
    return found
