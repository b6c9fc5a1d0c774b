"""Runs that wait for the gate of their processor.

A run that is not part of a flow is inserted GATED if its processor has needs. It is admitted when
its gate allows it to start; `flows.run_gates` evaluates gates through the hooks of `runs.hooks`.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.db.store import Tx
from penstock.runs.hooks import gate_runs, on_gated
from penstock.runs.rows import NewRun
from penstock.runs.store.runs import run_insert_many

ADMIT = "admit"


def run_insert_gated(tx: Tx, runs: Sequence[NewRun], actor: str) -> list[int]:
    """Insert runs that wait for their gates, with mode and partition. Return their ids in order."""
    if not runs:
        return []
    resolved = gate_runs(tx, runs)
    keys = sorted({run.ordering_key for run in resolved if run.ordering_key is not None})
    if keys:
        tx.run("ordering_key_lock_many", batch=[(key,) for key in keys])
    ids = sorted(row[0] for row in tx.rows("run_insert_gated", batch=resolved))
    assert len(ids) == len(resolved), f"{len(resolved)} runs were submitted, {len(ids)} created"
    made = list(zip(ids, resolved, strict=True))
    journal_append_many(
        tx,
        [
            Entry("run", run_id, run.customer_key, "created", actor, None, "PENDING", None,
                  run.trigger_source)
            for run_id, run in made
        ],
    )  # fmt: skip
    on_gated(tx, made)
    return ids


def run_insert_mixed(
    tx: Tx, runs: Sequence[NewRun], is_gated: Sequence[bool], actor: str
) -> list[int]:
    """Insert runs, some of which wait for their gates. Return their ids in order."""
    plain = [run for run, waits in zip(runs, is_gated, strict=True) if not waits]
    waiting = [run for run, waits in zip(runs, is_gated, strict=True) if waits]
    plain_ids = iter(run_insert_many(tx, plain, actor) if plain else [])
    waiting_ids = iter(run_insert_gated(tx, waiting, actor))
    return [next(waiting_ids) if waits else next(plain_ids) for waits in is_gated]


def run_gate_pass(tx: Tx, runs: Sequence[tuple[int, str | None]]) -> None:
    """Admit runs, given as (run, ordering key), whose gates allow them to start."""
    keys = sorted({key for _, key in runs if key is not None})
    if keys:
        tx.run("ordering_key_lock_many", batch=[(key,) for key in keys])
    tx.run("run_gate_pass", batch=[(run_id,) for run_id, _ in runs])
    tx.wake([ADMIT])
