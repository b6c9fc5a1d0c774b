"""Records of items from stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.core.ids import encode
from penstock.core.records.record import time
from penstock.flows.items.fan_in import ExpansionRow, quorum
from penstock.flows.items.records import FlowItem, ItemError, ItemState, ItemSummary
from penstock.flows.items.store.reads import ItemRow


def item_record(row: ItemRow) -> FlowItem:
    """Convert an item row to its public record."""
    return FlowItem(
        item_key=row.item_key,
        phase=row.phase,
        processor=row.processor,
        state=cast("ItemState", row.state),
        run_id=encode("run", row.run_id),
        since=time(row.since),
        error_type=row.error_type,
        records=row.records,
    )


def summary_record(
    row: ExpansionRow,
    min_items: float,
    errors: Sequence[tuple[str, int]] = (),
    first: Sequence[ItemRow] = (),
) -> ItemSummary:
    """Return the counts of a processor's items."""
    return ItemSummary(
        phase=row.phase,
        processor=row.processor,
        state=cast("Any", row.state),
        total=row.total,
        created=row.created,
        succeeded=row.succeeded,
        partial=row.partial,
        failed=row.failed,
        required=quorum(row.total, min_items),
        records=row.records,
        error=row.error,
        errors=[ItemError(error_type=kind, count=n) for kind, n in errors],
        first_failures=[item_record(one) for one in first],
    )
