"""What a session holds: asked after a claim whose answer was lost.

A claim that committed while the connection broke leaves runs in the hands of a worker that does not
know them; nothing else would ever end them while that worker lives.
"""

from __future__ import annotations

from penstock.db.store import Tx
from penstock.runs.rows import HeldRun


def session_runs(tx: Tx, session_id: int) -> list[HeldRun]:
    """The runs a live session holds, as their holder sees them."""
    return [HeldRun._make(row) for row in tx.rows("session_runs", {"session_id": session_id})]
