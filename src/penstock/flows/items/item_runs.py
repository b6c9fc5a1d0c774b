"""New runs of items, built from the flow, the processor and the item. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.naming import ProcessorKey
from penstock.flows.items.item_list import KeyedItem
from penstock.flows.rows import FlowRow
from penstock.runs.rows import NewRun


def item_runs(
    flow: FlowRow,
    processor_key: ProcessorKey,
    items: Iterable[KeyedItem],
    source: str,
    *,
    max_execution_us: int | None,
    is_entry: bool,
) -> list[NewRun]:
    """Return one run per item.

    source: what triggered the phase. is_entry: whether the flow begins with it, at its start time.
    """
    one = NewRun(
        customer_key=flow.customer_key,
        processor_key=processor_key,
        config_id=flow.config_id or None,
        flow_id=flow.flow_id,
        partition=flow.partition,
        mode=flow.mode,
        occurrence_time=flow.occurrence_time,
        scheduled_time=flow.start_at if is_entry else None,
        priority=flow.priority,
        max_execution_us=max_execution_us,
        parameters=flow.parameters,
        correlation_id=flow.correlation_id,
        trigger_source=source,
        trigger_message_id=flow.message_id if is_entry else None,
    )
    return [one._replace(item_key=item.key, item=item.value) for item in items]
