"""Search for objects of every kind: each statement is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first
from penstock.tracking.rows import FoundRow
from penstock.tracking.search_text import SearchText, spelled

NEWEST: Final = 1_000
"""Number of the newest ids of each kind whose spelling is compared with a fragment."""
PREFIX_SCAN: Final = 200
"""Number of runs whose correlation ids are read for a prefix."""
LAST_CHARACTER: Final = "\U0010ffff"
_STATEMENTS: Final = {
    "run": "find_runs",
    "flow": "find_flows",
    "cfg": "find_configs",
    "dl": "find_dead_letters",
    "alert": "find_alerts",
}


def objects_found(
    tx: Tx,
    wanted: SearchText,
    customer_key: CustomerKey | None,
    entity_owner: tuple[CustomerKey, str] | None,
    limit: int,
) -> Iterator[FoundRow]:
    """Yield the objects that match a text, exact matches first; at most `limit` of each kind.

    entity_owner: customer whose entities are searched; None if it does not exist.
    """
    own = {"customer": customer_key}
    for kind, number in wanted.whole.items():
        rows = tx.rows(_STATEMENTS[kind], {"ids": [number], **own})
        yield from (FoundRow._make(row) for row in rows)
    if wanted.message_id is not None:
        rows = tx.rows("find_message", {"message_id": wanted.message_id, **own})
        yield from (FoundRow._make(row) for row in rows)
    if wanted.entity is not None and entity_owner is not None:
        yield from _entity(tx, wanted.entity, entity_owner)
    if wanted.partition is not None:
        pipeline, partition = wanted.partition
        params = {"pipeline": pipeline, "partition": partition, "limit": limit, **own}
        yield from (FoundRow._make(row) for row in tx.rows("find_partition", params))
    if wanted.fragment is not None:
        newest = tx.rows("find_newest", {"n": NEWEST, **own})
        pairs = dict.fromkeys((row[0], row[1]) for row in newest)
        for kind, numbers in spelled(wanted.fragment, pairs).items():
            rows = tx.rows(_STATEMENTS[kind], {"ids": numbers[:limit], **own})
            yield from (FoundRow._make(row) for row in rows)
    yield from _named(tx, wanted, customer_key, limit)


def _entity(tx: Tx, entity: tuple[str, str], owner: tuple[CustomerKey, str]) -> Iterator[FoundRow]:
    kind, name = entity
    customer_key, customer_id = owner
    params = {"customer": customer_key, "kind": kind, "entity": name}
    row = first(tx.rows("find_entity", params))
    if row is not None:
        yield FoundRow("entity", 0, f"{kind}:{name}", customer_id, None, row[0])


def _named(
    tx: Tx, wanted: SearchText, customer_key: CustomerKey | None, limit: int
) -> Iterator[FoundRow]:
    text = wanted.text
    params = {
        "prefix": text,
        "prefix_end": text + LAST_CHARACTER,
        "customer": customer_key,
        "scan": PREFIX_SCAN,
        "limit": limit,
    }
    for row in tx.rows("find_correlations", params):
        yield FoundRow("correlation", 0, row[0], None, None, None)
    names = {"begins": wanted.begins, "contains": wanted.contains, "customer": customer_key}
    for kind, number, name, customer_id in tx.rows("find_names", {**names, "limit": limit}):
        yield FoundRow(kind, number, name, customer_id, None, None)
