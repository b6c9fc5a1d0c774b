"""Log lines of runs: written in batches by the holder of a run, read for one run.

The lines of a batch are JSON: a list of [time in microseconds, level, logger, message].
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx

PARTS_MAX = 1_000
"""How many batches of lines of a run are read."""


class LogLineRow(NamedTuple):
    """One line of a run's log."""

    at: Micros
    level: str
    logger: str
    message: str


class LogPart(NamedTuple):
    """A batch of lines of one execution; `part` counts the batches from 0."""

    run_id: int
    token: int
    part: int
    customer_key: CustomerKey
    lines: str


def run_log_put_held(tx: Tx, parts: Sequence[LogPart]) -> None:
    """Add lines of live runs; those of a stale token are ignored."""
    if parts:
        rows = [(one.run_id, one.token, one.part, one.lines) for one in parts]
        tx.run("run_log_put_held", batch=rows)


def run_log_put_ended(tx: Tx, parts: Sequence[LogPart]) -> None:
    """Add lines of runs that this transaction ended or released."""
    if parts:
        tx.run("run_log_put_ended", batch=list(parts))


def run_log_list(tx: Tx, run_id: int) -> list[LogLineRow]:
    """Return the lines of a run, oldest first."""
    rows = tx.rows("run_log_list", {"run_id": run_id, "n": PARTS_MAX})
    return [LogLineRow(*line) for (text,) in rows for line in json.loads(text)]
