"""Reading items: pages of them, the errors of failed ones, and those that can be retried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.naming import ProcessorKey
from penstock.db.store import Tx

ENDED: Final = {"succeeded": "success", "partial": "partial", "failed": "failed"}
LIVE: Final = ("waiting", "running")
NO_STATUS: Final = "none"


class ItemRow(NamedTuple):
    """An item of a flow (statement `item_list`)."""

    processor_key: ProcessorKey
    phase: str
    processor: str
    item_key: str
    state: str
    run_id: int
    since: int
    error_type: str | None
    records: int | None


class ItemFilter(NamedTuple):
    """Which items of a flow to read, after which position."""

    flow_id: int
    processor: ProcessorKey | None = None
    state: str | None = None
    after_processor: int = 0
    after_key: str = ""
    limit: int = 50


def item_list(tx: Tx, wanted: ItemFilter) -> list[ItemRow]:
    """Return items by processor and key; a live run hides the end of an earlier one."""
    state = wanted.state
    params = {
        **wanted._asdict(),
        "status": None if state is None else ENDED.get(state, NO_STATUS),
        "live": "any" if state is None else state if state in LIVE else None,
    }
    del params["state"]
    found: dict[tuple[int, str], ItemRow] = {}
    for row in tx.rows("item_list", params):
        item = ItemRow._make(row)
        found.setdefault((item.processor_key, item.item_key), item)
    return list(found.values())[: wanted.limit]


def item_errors(tx: Tx, flow_id: int, processor_key: ProcessorKey, n: int) -> list[tuple[str, int]]:
    """Return the kinds of errors of failed items, most frequent first."""
    params = {"flow_id": flow_id, "processor": processor_key, "limit": n}
    return [(row[0], row[1]) for row in tx.rows("item_errors", params)]


def item_retryable(
    tx: Tx,
    flow_id: int,
    processor_key: ProcessorKey,
    *,
    keys: Sequence[str],
    pattern: str | None,
    error_type: str | None,
    limit: int,
) -> list[tuple[str, int]]:
    """Return (key, last run) of items to retry: those named, or the failed ones that match.

    pattern: a LIKE pattern with backslash as escape character.
    """
    params = {
        "flow_id": flow_id,
        "processor": processor_key,
        "keys": list(keys),
        "is_filter": not keys,
        "pattern": pattern,
        "error_type": error_type,
        "limit": limit,
    }
    return [(row[0], row[1]) for row in tx.rows("item_retryable", params)]
