"""Runs held by external workers, with their leases and row locks.

A run is held externally as long as its lease row exists and has its token; a sweeper deletes
the row of an expired lease. Runs are locked in id order, before their leases, as in every
transaction that ends or sweeps them. A lease may be deleted between this read and its renewal, so a
caller that renews must check the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.access.store.registry import customer_get
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first
from penstock.runs.rows import HeldRun, RunRow
from penstock.runs.store.runs import run_chain, run_of_row

_HELD = len(HeldRun._fields)


class ExternalRun(NamedTuple):
    """A run held by an external worker; `now` is the time to compare with `until_at`."""

    held: HeldRun
    holder: str
    until_at: int
    now: int


class ProgressUpdate(NamedTuple):
    """Progress from a heartbeat; None keeps the previous value."""

    run_id: int
    current_state: str
    stage: str | None
    percent: float | None
    estimated_completion_at: int | None
    records_extracted: int | None
    records_transformed: int | None
    records_loaded: int | None
    bytes_processed: int | None


def external_run_get_many(
    tx: Tx, ids: Iterable[int], customer_key: CustomerKey | None = None
) -> dict[int, ExternalRun]:
    """Return runs held externally, locked until the transaction ends; other ids are missing."""
    rows = tx.rows("external_run_get_many", {"ids": sorted(set(ids)), "customer": customer_key})
    found = [ExternalRun(HeldRun._make(row[:_HELD]), *row[_HELD:]) for row in rows]
    return {one.held.run_id: one for one in found if one.holder and one.held.session_id is None}


def run_find_many(
    tx: Tx, ids: Iterable[int], customer_key: CustomerKey | None = None
) -> dict[int, RunRow]:
    """Return runs by id, live or ended."""
    wanted = set(ids)
    params = {"ids": sorted(wanted), "customer": customer_key}
    found = {row[0]: run_of_row(row) for row in tx.rows("run_find_live_many", params)}
    if missing := wanted - found.keys():
        params["ids"] = sorted(missing)
        found |= {row[0]: run_of_row(row) for row in tx.rows("run_find_ended_many", params)}
    return found


def run_retry_of(tx: Tx, run: RunRow) -> tuple[int, int] | None:
    """Return (run, due time) of the retry of an ended run, even if that retry has ended too."""
    customer = customer_get(tx, run.customer_id)
    assert customer is not None
    params = {
        "customer": customer,
        "config_id": run.config_id,
        "slot": run.occurrence_time,
        "attempt": run.attempt + 1,
        "run_id": run.run_id,
    }
    row = first(tx.rows("run_retry_live", params))
    if row is not None:
        return row[0], row[1]
    ended = [other for other in run_chain(tx, run, customer) if other.parent_run_id == run.run_id]
    return (ended[0].run_id, ended[0].scheduled_time) if ended else None


def progress_update_many(tx: Tx, updates: Sequence[ProgressUpdate]) -> set[int]:
    """Write the progress of runs that the caller holds. Return the runs written."""
    return {row[0] for row in tx.rows("progress_update_many", batch=updates)}
