"""Journal, seals and outbox: what happened, written in the transaction in which it happened.

The journal is append-only and sealed in blocks by a background service; the outbox holds messages
that are sent with a transaction. Both are read in an order that cannot miss a slow transaction's
rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.audit.rows import Entry, JournalRow, OutboxMessage, Seal
from penstock.db.store import Row, Tx, first, one


def journal_append_many(tx: Tx, entries: Sequence[Entry]) -> None:
    """Append entries in the transaction they describe."""
    tx.later("journal_append_many", batch=entries)


def journal_for(tx: Tx, kind: str, subject: int, limit: int = 200) -> list[JournalRow]:
    """Return all journal entries of one subject, oldest first."""
    params = {"kind": kind, "subject": subject, "limit": limit}
    return [JournalRow._make(row) for row in tx.rows("journal_for_subject", params)]


def seal_next(tx: Tx, n: int) -> int:
    """Seal up to `n` further entries as one block. Return how many; 0 also if locked elsewhere."""
    if not one(tx.rows("seal_lock"))[0]:
        return 0
    last = first(tx.rows("seal_last"))
    after_seq, after_xid, previous, cluster = (0, "0", "", 0) if last is None else last[1:5]
    current = one(tx.rows("journal_cluster"))[0]
    while True:
        params = {"after_xid": after_xid, "after_seq": after_seq, "cluster": cluster, "n": n}
        rows = tx.rows("journal_unsealed", params)
        if rows or cluster == current:
            break
        # Everything that the earlier cluster wrote is sealed: continue with the next.
        after_seq, after_xid, cluster = 0, "0", cluster + 1
    if not rows:
        return 0
    root = block_root(rows)
    tx.rows(
        "seal_put",
        {
            "from_seq": rows[0][1],
            "to_seq": rows[-1][1],
            "to_xid": rows[-1][0],
            "cluster": cluster,
            "entries": len(rows),
            "root": root,
            "previous": previous,
            "head": chain_head(previous, len(rows), root),
        },
    )
    return len(rows)


def seals_verify(tx: Tx, n: int = 100_000) -> tuple[int, int, str | None]:
    """Recompute every seal. Return (blocks, entries, first problem or None).

    Blocks whose entries may have been pruned are checked only for their chain.
    """
    pruned = first(tx.rows("counter_get", {"name": "journal_pruned_to"}))
    pruned_to = 0 if pruned is None else pruned[0]
    previous, blocks, entries, cluster = "", 0, 0, 0
    after_xid, after_seq = "0", 0
    while True:
        page = [Seal._make(row) for row in tx.rows("seal_list", {"after": blocks, "limit": 500})]
        if not page:
            return blocks, entries, None
        for seal in page:
            if seal.cluster != cluster:
                after_xid, after_seq, cluster = "0", 0, seal.cluster
            params = {"after_xid": after_xid, "after_seq": after_seq, "cluster": cluster,
                      "to_xid": seal.to_xid, "to_seq": seal.to_seq, "n": n}  # fmt: skip
            if seal.sealed_at >= pruned_to:
                rows = tx.rows("journal_sealed", params)
                if len(rows) != seal.entries or block_root(rows) != seal.root:
                    problem = f"block {seal.block}: entries were changed, added or removed"
                    return blocks, entries, problem
            if seal.previous != previous or seal.head != chain_head(
                previous, seal.entries, seal.root
            ):
                return blocks, entries, f"block {seal.block}: the chain is broken"
            previous, blocks, entries = seal.head, seal.block, entries + seal.entries
            after_xid, after_seq = seal.to_xid, seal.to_seq


def block_root(rows: Sequence[Row]) -> str:
    """Return the hash over all columns of a block's entries, in order."""
    digest = hashlib.sha256()
    encode = msgspec.json.Encoder().encode
    for row in rows:
        digest.update(encode(row))
    return digest.hexdigest()


def chain_head(previous: str, entries: int, root: str) -> str:
    """Return the head of the chain after a block."""
    return hashlib.sha256(f"{previous}|{entries}|{root}".encode()).hexdigest()


def outbox_put(tx: Tx, topic: str, payload: Any, ordering_key: str | None = None) -> None:
    """Send a message with this transaction."""
    text = msgspec.json.encode(payload).decode()
    tx.run("outbox_put", {"topic": topic, "payload": text, "ordering_key": ordering_key})


def outbox_take(tx: Tx, n: int) -> list[OutboxMessage]:
    """Remove up to `n` unsent messages; they are sent when this transaction commits."""
    messages = [OutboxMessage._make(row) for row in tx.rows("outbox_take", {"n": n})]
    return sorted(messages)


def outbox_remove(tx: Tx, outbox_id: int) -> OutboxMessage | None:
    """Remove and return a message that cannot be sent; None if it is gone."""
    row = first(tx.rows("outbox_remove", {"outbox_id": outbox_id}))
    return None if row is None else OutboxMessage._make(row)


def outbox_count(tx: Tx) -> tuple[int, int | None]:
    """Return (number of waiting messages, creation time of the oldest)."""
    row = one(tx.rows("outbox_count"))
    return row[0], row[1]
