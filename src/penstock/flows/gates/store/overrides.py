"""Human input to gates: overrides (approvals) and interventions (the manual queue).

An override is granted by an authenticated caller, for a partition, until a time, with a reason; the
caller writes its audit entry in the same transaction. An intervention is one open row per gate. A
person resolves it, or the gate itself once its data is available.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first, one
from penstock.flows.advance.messages import gate_alert_key, needs_intervention
from penstock.flows.gates.override import Override
from penstock.flows.gates.rows import (
    InterventionFilter,
    InterventionRow,
    NewIntervention,
    OverrideFilter,
    OverrideRow,
)
from penstock.flows.gates.verdict import Verdict
from penstock.flows.rows import PhaseRow
from penstock.flows.store.logs import alert_resolve_many


def overrides_of(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[Override, ...]]:
    """Return overrides in force, by flow."""
    found: dict[int, tuple[Override, ...]] = {}
    for row in tx.rows("override_rows_for_flows", {"ids": list(ids)}):
        found[row[0]] = (*found.get(row[0], ()), OverrideRow._make(row[1:]).record)
    return found


def override_put(tx: Tx, params: dict[str, Any]) -> tuple[int, int]:
    """Insert an override (columns as in the statement). Return (id, approved_at)."""
    row = one(tx.rows("override_put", params))
    return row[0], row[1]


def override_revoke(
    tx: Tx, override_id: int, actor: str, customer_key: CustomerKey | None = None
) -> bool:
    """Revoke an override. Return False if it is not in force or belongs to another customer."""
    params = {"override_id": override_id, "actor": actor, "customer": customer_key}
    return bool(tx.rows("override_revoke", params))


def override_list(tx: Tx, wanted: OverrideFilter) -> list[OverrideRow]:
    """Return overrides, newest first."""
    return [OverrideRow._make(row) for row in tx.rows("override_list", wanted._asdict())]


def intervention_put_many(tx: Tx, items: Sequence[NewIntervention]) -> None:
    """Insert interventions; an open one of the same gate is updated."""
    tx.later("intervention_put_many", batch=items)


def intervention_close_many(tx: Tx, rows: Sequence[tuple[int, str, str, str]]) -> None:
    """Close the open interventions of (flow, phase, processor) with a resolution."""
    tx.later("intervention_close_many", batch=rows)


def flow_requests_close(tx: Tx, gates: Sequence[PhaseRow], actor: str) -> None:
    """Close the interventions and alerts of a cancelled flow."""
    resolution = "the flow was cancelled"
    asked = [gate for gate in gates if needs_intervention(gate)]
    intervention_close_many(tx, [(g.flow_id, g.phase, g.processor, resolution) for g in asked])
    keys = [gate_alert_key(g.flow_id, g.phase, g.processor, v) for g in gates for v in Verdict]
    alert_resolve_many(tx, keys, actor)


def intervention_resolve(
    tx: Tx,
    intervention_id: int,
    actor: str,
    resolution: str,
    customer_key: CustomerKey | None = None,
) -> tuple[int, int, str] | None:
    """Resolve an intervention. Return (flow, customer, phase), or None if it is not open."""
    params = {
        "intervention_id": intervention_id,
        "actor": actor,
        "resolution": resolution,
        "customer": customer_key,
    }
    row = first(tx.rows("intervention_resolve", params))
    return None if row is None else (row[0], row[1], row[2])


def intervention_list(tx: Tx, wanted: InterventionFilter) -> list[InterventionRow]:
    """Return interventions, newest first."""
    return [InterventionRow._make(row) for row in tx.rows("intervention_list", wanted._asdict())]
