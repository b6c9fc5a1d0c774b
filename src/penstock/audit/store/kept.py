"""Retention of ended records, as the pruner applies it, stored as counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.core.clock import Micros
from penstock.db.store import Tx, first

HISTORY: Final = "history_kept_us"
"""Counter with the retention of ended runs and open dead letters."""
RESOLVED: Final = "dead_letters_kept_us"
"""Counter with the retention of dead letters that were replayed or discarded."""


def kept_record(tx: Tx, spans: Mapping[str, Micros]) -> None:
    """Store the retention of records, by counter, where it has changed."""
    for name, span in spans.items():
        tx.run("kept_set", {"name": name, "value": span})


def kept_until(tx: Tx, name: str, at: Micros | None) -> Micros | None:
    """Return the time until which an ended record is kept; None before the first pruning."""
    if at is None:
        return None
    row = first(tx.rows("counter_get", {"name": name}))
    return None if row is None else at + int(row[0])
