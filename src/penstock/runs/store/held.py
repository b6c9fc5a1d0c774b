"""Runs held by a session, read after a claim whose response was lost.

A claim that committed while the connection broke leaves runs with a worker that does not know of
them; nothing else would end them while that worker lives.
"""

from __future__ import annotations

from penstock.db.store import Tx
from penstock.runs.rows import HeldRun


def session_runs(tx: Tx, session_id: int) -> list[HeldRun]:
    """Return the runs a live session holds, as their holder sees them."""
    return [HeldRun._make(row) for row in tx.rows("session_runs", {"session_id": session_id})]
