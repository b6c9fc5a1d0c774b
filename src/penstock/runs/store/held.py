"""Runs and their holders: the runs of a session, and checks of fencing tokens.

A claim that committed while the connection broke leaves runs assigned to a worker that is unaware
of them; nothing else would end them while that worker is alive.
"""

from __future__ import annotations

from penstock.core.errors import StaleToken
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first
from penstock.runs.rows import HeldRun


def session_runs(tx: Tx, session_id: int) -> list[HeldRun]:
    """Return the runs a live session holds, as their holder sees them."""
    return [HeldRun._make(row) for row in tx.rows("session_runs", {"session_id": session_id})]


def run_token_lock(
    tx: Tx, run_id: int, token: int, customer_key: CustomerKey | None = None
) -> CustomerKey:
    """Return the customer of a run that is held under a token; raise StaleToken if it is not.

    The run stays with its holder until the transaction ends, so that it cannot be lost while the
    holder writes.
    """
    params = {"run_id": run_id, "token": token, "customer": customer_key}
    row = first(tx.rows("run_token_lock", params))
    if row is None:
        raise StaleToken(encode("run", run_id))
    return CustomerKey(row[0])
