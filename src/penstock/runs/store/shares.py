"""Weights of customers: waiting runs get new fair ranks after a weight was changed."""

from __future__ import annotations

from penstock.db.store import Tx, first, one


def run_rerank(tx: Tx, n: int) -> int | None:
    """Rank up to `n` waiting runs again, of one customer whose weight was changed.

    Return how many, or None if there is no such customer. Call it until it returns None.
    """
    row = first(tx.rows("rerank_next"))
    if row is None:
        return None
    customer, after, upto = row
    if not upto:
        upto = one(tx.rows("rerank_begin", {"customer": customer}))[0]
    params = {"customer": customer, "after": after, "upto": upto, "n": n}
    count, last = one(tx.rows("run_rerank", params))
    state = {"customer": customer, "after": last if count >= n else None, "upto": upto}
    tx.run("rerank_put", state)
    return int(count)
