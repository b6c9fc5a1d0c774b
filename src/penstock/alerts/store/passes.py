"""Passes of the alert evaluator: who makes the next one, which are applied, when one last ended."""

from __future__ import annotations

from typing import Final

from penstock.core.clock import Micros
from penstock.db.store import Tx, first
from penstock.flows.ladder.store import pass_take

BEGUN: Final = "alerts_begun_at"
APPLIED: Final = "alerts_applied_at"
"""Beginning of the newest pass that was applied."""
EVALUATED: Final = "alerts_evaluated_at"
"""End of the last pass."""


def evaluation_begin(tx: Tx, interval_us: Micros) -> bool:
    """Claim an interval. Return False if another process has claimed it."""
    if not pass_take(tx, BEGUN, interval_us):
        return False
    tx.run("evaluation_first", {"name": EVALUATED})
    return True


def evaluation_apply(tx: Tx, started: Micros) -> bool:
    """Record the end of a pass. Return False if one that began later was applied before."""
    tx.run("evaluation_end", {"name": EVALUATED})
    return bool(tx.rows("evaluation_apply", {"name": APPLIED, "started": started}))


def evaluation_ended(tx: Tx) -> Micros:
    """Return when a pass last ended; if none has, when the first one began; 0 without any."""
    row = first(tx.rows("counter_get", {"name": EVALUATED}))
    return 0 if row is None else int(row[0])
