"""Effects of storing the items of a processor, or of failing to: journal, event and alert."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.audit.rows import Entry, NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.audit.store.journal import journal_append_many
from penstock.core.ids import encode
from penstock.db.store import Tx
from penstock.flows.items.item_list import KeyedItem
from penstock.flows.rows import FlowRow
from penstock.flows.store.completions import flow_event_put_many


def expansion_settled(
    tx: Tx,
    flow: FlowRow,
    gate_key: tuple[str, str],
    *,
    items: Sequence[KeyedItem] | None = None,
    error: str | None = None,
    actor: str,
) -> None:
    """Record that the items of a processor were stored, or why there are none.

    Without items, or after an error, no run will end, so a flow event completes the processor.
    """
    if items is None and error is None:
        return
    phase, processor = gate_key
    detail = {"phase": phase, "processor": processor, "partition": flow.partition,
              "mode": flow.mode, "correlation_id": flow.correlation_id}  # fmt: skip
    if items is not None:
        detail["items"] = str(len(items))
    action = "expanded" if error is None else "expansion_failed"
    entry = Entry("flow", flow.flow_id, flow.customer_key, action, actor, None, None, None, error,
                  json.dumps(detail, sort_keys=True))  # fmt: skip
    journal_append_many(tx, [entry])
    if not items:
        flow_event_put_many(tx, [(flow.flow_id, flow.customer_key, phase, False)])
    if error is not None:
        alert_open(
            tx,
            NewAlert(
                rule="expansion_failed",
                dedupe_key=f"expansion_failed:{flow.flow_id}:{phase}:{processor}",
                severity="HIGH",
                subject_kind="flow",
                subject=flow.flow_id,
                customer_key=flow.customer_key,
                message=f"{flow.pipeline} {flow.partition}: the items of {phase}.{processor} are "
                f"unknown: {error}. Repair the source, then: penstock trigger {flow.pipeline} "
                f"{flow.partition} {phase} (flow {encode('flow', flow.flow_id)})",
            ),
        )
