"""Log entries of runs: written in batches by the holder of a run, read for one run.

The entries of a batch are JSON: a list of [time in microseconds, level, logger, message].
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx

PARTS_MAX = 1_000
"""Maximum number of batches of entries that are read per run."""


class LogEntryRow(NamedTuple):
    """One entry of a run's log."""

    at: Micros
    level: str
    logger: str
    message: str


class LogPart(NamedTuple):
    """A batch of entries of one execution; `part` counts the batches from 0."""

    run_id: int
    token: int
    part: int
    customer_key: CustomerKey
    entries: str


def run_log_put_held(tx: Tx, parts: Sequence[LogPart]) -> None:
    """Add entries of live runs; those of a stale token are ignored."""
    if parts:
        rows = [(one.run_id, one.token, one.part, one.entries) for one in parts]
        tx.run("run_log_put_held", batch=rows)


def run_log_put_ended(tx: Tx, parts: Sequence[LogPart]) -> None:
    """Add entries of runs that this transaction ended or released."""
    if parts:
        tx.run("run_log_put_ended", batch=list(parts))


def run_log_list(tx: Tx, run_id: int) -> list[LogEntryRow]:
    """Return the entries of a run, oldest first."""
    rows = tx.rows("run_log_list", {"run_id": run_id, "n": PARTS_MAX})
    return [LogEntryRow(*entry) for (text,) in rows for entry in json.loads(text)]
