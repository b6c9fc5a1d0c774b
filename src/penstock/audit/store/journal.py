"""Journal, seals and outbox, written in the transaction that they describe.

The journal is append-only and sealed in blocks by a background service; the outbox holds messages
that are published after their transaction has committed. Both are read in an order that cannot miss
a slow transaction's rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.audit.rows import (
    Entry,
    JournalFilter,
    JournalRow,
    ListedEntry,
    OutboxMessage,
    Seal,
    UnsealedBlock,
)
from penstock.db.store import Row, Tx, first, one

SEALS_TOPIC = "penstock.seal-heads"
"""Built-in topic on which the heads of sealed blocks are published."""
SEAL_VERSION = 2
JournalPosition: TypeAlias = tuple[int | None, str, int]
"""Cluster (None for all), transaction and number of the entry after which a list continues."""
NEWEST = ("9223372036854775807", 2**63 - 1)
"""A position after every entry of a cluster; a list that starts there begins with the newest."""
WINDOW = 5_000
"""Maximum number of entries that one page of a filtered list reads."""


def journal_append_many(tx: Tx, entries: Sequence[Entry]) -> None:
    """Append entries in the transaction they describe."""
    tx.later("journal_append_many", batch=entries)


def journal_for(tx: Tx, kind: str, subject: int, limit: int = 200) -> list[JournalRow]:
    """Return all journal entries of one subject, oldest first."""
    params = {"kind": kind, "subject": subject, "limit": limit}
    return [JournalRow._make(row) for row in tx.rows("journal_for_subject", params)]


def journal_list(
    tx: Tx, wanted: JournalFilter, after: JournalPosition | None, limit: int
) -> tuple[list[ListedEntry], JournalPosition | None]:
    """Return matching entries, newest first, and the position of the next page; None at the end.

    A filter reads a bounded number of entries, so a page may have few rows although more follow.
    Entries of an earlier cluster follow those of the current one. A transaction bound to a
    customer cannot see clusters and reads its entries together.
    """
    cluster, xid, seq = after or (journal_cluster(tx) if tx.sees_all else None, *NEWEST)
    position: dict[str, Any] = {"cluster": cluster, "xid": xid, "seq": seq}
    is_filtered = wanted != JournalFilter()
    window = {**position, "window": WINDOW}
    end = first(tx.rows("journal_window", window)) if is_filtered else None
    until_xid, until_seq = ("0", 0) if end is None else end
    bounds = {"until_xid": until_xid, "until_seq": until_seq, "limit": limit}
    found = tx.rows("journal_list", {**position, **bounds, **wanted._asdict()})
    rows = [ListedEntry._make(row) for row in found]
    if len(rows) >= limit:
        return rows, (cluster, rows[-1].xid, rows[-1].seq)
    if end is not None:
        return rows, (cluster, until_xid, until_seq)
    return rows, (cluster - 1, *NEWEST) if cluster else None


def journal_names(tx: Tx, run_ids: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Return the pipelines and processors of runs."""
    if not run_ids:
        return {}
    return {row[0]: (row[1], row[2]) for row in tx.rows("journal_names", {"ids": list(run_ids)})}


def seal_read(tx: Tx, n: int) -> UnsealedBlock | None:
    """Return the next block of up to `n` entries to seal; None if no entry can be sealed.

    Only `seal_write` needs a write transaction, so that hashing a block blocks no writer: what can
    be sealed never changes, and no entry can come before it any more.
    """
    tx.rows("seal_plan")
    last = first(tx.rows("seal_last"))
    after_block, after_seq, after_xid, _, cluster = last or (0, 0, "0", "", 0)
    current = journal_cluster(tx)
    while True:
        params = {"after_xid": after_xid, "after_seq": after_seq, "cluster": cluster, "n": n}
        rows = tx.rows("journal_unsealed", params)
        if rows or cluster == current:
            break
        # Everything that the earlier cluster wrote is sealed: continue with the next.
        after_seq, after_xid, cluster = 0, "0", cluster + 1
    if not rows:
        return None
    return UnsealedBlock(
        after_block=after_block,
        after_xid=after_xid,
        after_seq=after_seq,
        from_seq=rows[0][1],
        to_seq=rows[-1][1],
        to_xid=rows[-1][0],
        entries=len(rows),
        root=block_root(rows),
        cluster=cluster,
    )


def seal_write(tx: Tx, block: UnsealedBlock) -> int | None:
    """Seal a block that `seal_read` returned. Return its number of entries; 0 if another process
    holds the lock.

    None if the block has to be read again: another was sealed since, or the database lost the end
    of its journal in a crash (commits that were not synchronous, an asynchronous standby).
    """
    if not one(tx.rows("seal_lock"))[0]:
        return 0
    last = first(tx.rows("seal_last"))
    if (0 if last is None else last[0]) != block.after_block:
        return None
    if one(tx.rows("journal_sealed_count", block._asdict()))[0] != block.entries:
        return None
    seal = Seal(
        block=0,
        from_seq=block.from_seq,
        to_seq=block.to_seq,
        to_xid=block.to_xid,
        entries=block.entries,
        root=block.root,
        previous="" if last is None else last[3],
        head="",
        sealed_at=tx.now(),
        cluster=block.cluster,
        version=SEAL_VERSION,
    )
    seal = seal._replace(head=chain_head(seal))
    columns = {name: value for name, value in seal._asdict().items() if name != "block"}
    number = int(one(tx.rows("seal_put", columns))[0])
    facts = {"block": number, "entries": seal.entries, "head": seal.head, "at": seal.sealed_at}
    payload = msgspec.json.encode(facts).decode()
    tx.run("seal_announce", {"topic": SEALS_TOPIC, "payload": payload})
    return block.entries


def journal_pruned_to(tx: Tx) -> int:
    """Return the time before which entries may have been pruned."""
    return _counter(tx, "journal_pruned_to")


def history_pruned_to(tx: Tx) -> int:
    """Return the time before which runs in history may have been pruned."""
    return _counter(tx, "history_pruned_to")


def _counter(tx: Tx, name: str) -> int:
    row = first(tx.rows("counter_get", {"name": name}))
    return 0 if row is None else int(row[0])


def seal_list(tx: Tx, after: int, limit: int = 500) -> list[Seal]:
    """Return sealed blocks in order."""
    return [Seal._make(row) for row in tx.rows("seal_list", {"after": after, "limit": limit})]


def seal_list_newest(tx: Tx, before: int | None, limit: int) -> list[Seal]:
    """Return sealed blocks in reverse order, from the last one or from those before a block."""
    below = 2**62 if before is None else before
    return [
        Seal._make(row) for row in tx.rows("seal_list_newest", {"before": below, "limit": limit})
    ]


def seal_heads(tx: Tx, blocks: Sequence[int]) -> dict[int, str]:
    """Return the heads of those blocks that exist."""
    return {row[0]: row[1] for row in tx.rows("seal_heads", {"blocks": list(blocks)})}


def seal_entries(tx: Tx, seal: Seal, before: Seal | None, n: int = 100_000) -> list[Row]:
    """Return the entries of a block; `before` is the previous block."""
    continues = before is not None and before.cluster == seal.cluster
    after_xid, after_seq = (before.to_xid, before.to_seq) if before and continues else ("0", 0)
    params = {"after_xid": after_xid, "after_seq": after_seq, "cluster": seal.cluster,
              "to_xid": seal.to_xid, "to_seq": seal.to_seq, "n": n}  # fmt: skip
    return tx.rows("journal_copied" if seal.cluster < 0 else "journal_sealed", params)


def entries_after(tx: Tx, last: tuple[int, str, int], n: int) -> list[Row]:
    """Return the next entries of a cluster after (cluster, xid, seq), in commit-safe order."""
    cluster, xid, seq = last
    params = {"after_xid": xid, "after_seq": seq, "cluster": cluster, "n": n}
    return tx.rows("journal_unsealed", params)


def journal_cluster(tx: Tx) -> int:
    """Return the cluster that writes entries now; a restored database has entries of several."""
    return int(one(tx.rows("journal_cluster"))[0])


def seal_problem(seal: Seal, before: Seal | None, rows: Sequence[Row] | None) -> str | None:
    """Return the problems of a block; `rows` is None if its entries may have been pruned."""
    if rows is not None and (len(rows) != seal.entries or block_root(rows) != seal.root):
        return "entries were changed, added or removed"
    previous = "" if before is None else before.head
    if seal.previous != previous or seal.head != chain_head(seal):
        return "the chain is broken"
    return None


def seals_verify(tx: Tx) -> tuple[int, int, str | None]:
    """Recompute every seal. Return (blocks, entries, first problem or None).

    Blocks whose entries may have been pruned are checked only for their chain.
    """
    pruned_to = journal_pruned_to(tx)
    before: Seal | None = None
    entries = 0
    while page := seal_list(tx, 0 if before is None else before.block):
        for seal in page:
            rows = seal_entries(tx, seal, before) if seal.sealed_at >= pruned_to else None
            problem = seal_problem(seal, before, rows)
            if problem is not None:
                blocks = 0 if before is None else before.block
                return blocks, entries, f"block {seal.block}: {problem}"
            before, entries = seal, entries + seal.entries
    return (0 if before is None else before.block), entries, None


def block_root(rows: Sequence[Row]) -> str:
    """Return the hash over all columns of a block's entries, in order."""
    return hashlib.sha256(b"".join(map(msgspec.json.Encoder().encode, rows))).hexdigest()


def chain_head(seal: Seal) -> str:
    """Return the head of the chain after a block.

    It covers every column of the seal except its cluster, which a copy to another engine changes
    and which determines the content; the head of a seal of version 1 covers only the content.
    """
    text = f"{seal.previous}|{seal.entries}|{seal.root}"
    if seal.version > 1:
        text += f"|{seal.version}|{seal.from_seq}|{seal.to_seq}|{seal.to_xid}|{seal.sealed_at}"
    return hashlib.sha256(text.encode()).hexdigest()


def outbox_put(tx: Tx, topic: str, payload: Any, ordering_key: str | None = None) -> None:
    """Store a message that is published once this transaction has committed."""
    text = msgspec.json.encode(payload).decode()
    tx.run("outbox_put", {"topic": topic, "payload": text, "ordering_key": ordering_key})


def outbox_take(tx: Tx, n: int) -> list[OutboxMessage]:
    """Remove and return up to `n` unsent messages, to be published in this transaction."""
    messages = [OutboxMessage._make(row) for row in tx.rows("outbox_take", {"n": n})]
    return sorted(messages)


def outbox_remove(tx: Tx, outbox_id: int) -> OutboxMessage | None:
    """Remove and return a message that cannot be sent; None if it is gone."""
    row = first(tx.rows("outbox_remove", {"outbox_id": outbox_id}))
    return None if row is None else OutboxMessage._make(row)


def outbox_count(tx: Tx) -> tuple[int, int | None]:
    """Return the number of waiting messages, at most 100,000, and when the first was written."""
    row = one(tx.rows("outbox_count"))
    return row[0], row[1]
