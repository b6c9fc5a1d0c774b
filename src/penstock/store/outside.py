"""Runs held from outside: found with their leases, locked, for those who hold them.

A run is held from outside as long as its lease row is there and carries its token: the sweeper
takes the row of a lease that ran out, and from then on nothing is accepted. Rows are locked in the
order of their ids, the run before its lease, as everybody does who ends or sweeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.core.model import HeldRun, Run
from penstock.store.api import Tx, first
from penstock.store.runs import run_of_row

_HELD = len(HeldRun._fields)


class Outside(NamedTuple):
    """A run in the hands of somebody outside; `now` is the time to judge it by."""

    held: HeldRun
    holder: str
    until_at: int
    now: int


class Beat(NamedTuple):
    """Progress as a heartbeat tells it; None leaves what was told before."""

    run_id: int
    current_state: str
    stage: str | None
    percent: float | None
    estimated_completion_at: int | None
    records_extracted: int | None
    records_transformed: int | None
    records_loaded: int | None
    bytes_processed: int | None


def outside_get_many(tx: Tx, ids: Iterable[int], customer: int | None = None) -> dict[int, Outside]:
    """Runs held from outside, locked until the transaction ends; the others are missing."""
    rows = tx.rows("outside_get_many", {"ids": sorted(set(ids)), "customer": customer})
    return {row[0]: Outside(HeldRun._make(row[:_HELD]), *row[_HELD:]) for row in rows}


def run_find_many(tx: Tx, ids: Iterable[int], customer: int | None = None) -> dict[int, Run]:
    """Runs by id, live or ended."""
    wanted = set(ids)
    params = {"ids": sorted(wanted), "customer": customer}
    found = {row[0]: run_of_row(row) for row in tx.rows("run_find_live_many", params)}
    if missing := wanted - found.keys():
        params["ids"] = sorted(missing)
        found |= {row[0]: run_of_row(row) for row in tx.rows("run_find_ended_many", params)}
    return found


def run_retry_of(tx: Tx, run_id: int) -> tuple[int, int] | None:
    """(run, due) of the next attempt of an ended run."""
    row = first(tx.rows("run_retry_of", {"run_id": run_id}))
    return None if row is None else (row[0], row[1])


def progress_beat_many(tx: Tx, beats: Sequence[Beat]) -> set[int]:
    """Write what heartbeats told of runs that the caller holds."""
    return {row[0] for row in tx.rows("progress_beat_many", batch=beats)}
