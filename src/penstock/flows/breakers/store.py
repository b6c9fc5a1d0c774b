"""Reads and resets of breakers."""

from __future__ import annotations

from penstock.db.store import Tx
from penstock.flows.breakers.rows import BreakerFilter, BreakerRow, FailureRow

FAILURES_SHOWN = 5


def breaker_list(tx: Tx, wanted: BreakerFilter) -> list[BreakerRow]:
    """Return breakers in the order of their keys."""
    names = ("after_customer", "after_pipeline", "after_partition", "after_phase")
    params = {
        "customer": wanted.customer,
        "pipeline": wanted.pipeline,
        "partition": wanted.partition,
        "phase": wanted.phase,
        "limit": wanted.limit,
        **dict(zip(names, wanted.after, strict=True)),
    }
    name = "breaker_list_open" if wanted.is_open else "breaker_list_all"
    return [BreakerRow._make(row) for row in tx.rows(name, params)]


def breaker_reset(tx: Tx, row: BreakerRow) -> bool:
    """Close a breaker and clear its failures. Return False if there was none."""
    return bool(tx.rows("breaker_reset", _key(row)))


def breaker_failures(tx: Tx, row: BreakerRow) -> list[FailureRow]:
    """Return the newest failures of the phase in its partition, newest first."""
    params = {**_key(row), "n": FAILURES_SHOWN}
    found = [
        FailureRow(is_run=False, subject=number, at=at, processor=processor, text=decision)
        for number, at, processor, decision in tx.rows("breaker_decisions", params)
    ]
    found += [
        FailureRow(
            is_run=True,
            subject=number,
            at=at,
            processor=processor,
            text=f"{error}: {details}" if details else str(error),
        )
        for number, at, processor, error, details in tx.rows("breaker_runs", params)
    ]
    return sorted(found, key=lambda one: -one.at)[:FAILURES_SHOWN]


def breaker_blocks(tx: Tx, row: BreakerRow) -> list[int]:
    """Return the open flows in which the phase is blocked."""
    return [found[0] for found in tx.rows("breaker_blocks", _key(row))]


def _key(row: BreakerRow) -> dict[str, int | str]:
    return {
        "customer": row.customer_key,
        "pipeline": row.pipeline_key,
        "partition": row.partition,
        "phase": row.phase,
    }
