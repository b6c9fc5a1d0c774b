"""Retry of an ended run, now or later, as a new chain of attempts.

A manual retry and the replay of a dead letter share this code path: the new run processes the same
occurrence (scheduled time, partition, parameters, SLA clock) under the current declaration, and the
same transaction closes the dead letter.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.access.store.names import NameResolver
from penstock.access.store.registry import ProcessorRow, customer_get
from penstock.core.errors import Conflict, IllegalTransition, NotFound
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, runs_channel
from penstock.db.store import Transactions, Tx
from penstock.runs.hooks import RetryTerms, lock_config, on_retried, retry_terms
from penstock.runs.rows import NewRun, RunRow
from penstock.runs.store.gated import run_insert_gated
from penstock.runs.store.lists.pages import RunFilter, run_list_live
from penstock.runs.store.runs import (
    cohort_reopen,
    run_get,
    run_insert_many,
    run_live_of_item,
    run_retry_lock,
)
from penstock.runs.store.same_work import run_live_same, run_origins

LIVE_MAX = 100
"""Maximum number of live runs of a config that its overlap policy considers."""


class RetryPlan(NamedTuple):
    """A permitted retry: the ended run, its processor and the terms of its config."""

    old: RunRow
    processor: ProcessorRow
    owner: CustomerKey
    terms: RetryTerms | None


def run_retry(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    run_id: int,
    *,
    customer_key: CustomerKey | None,
    actor: str,
    at: int | None = None,
    parameters: str | None = None,
    use_config_parameters: bool = False,
) -> int:
    """Insert a run that retries an ended one; `parameters` (JSON) replace the old parameters.

    `at` is the earliest start of the new run in microseconds; None means now.
    `use_config_parameters` uses the current parameters of the config instead of the old ones.
    """
    # Two runs that come from the same one are retried one after the other.
    run_retry_lock(tx, run_origins(tx, [run_id])[0])
    old, row, owner, terms = retry_plan(tx, names, run_id, customer_key=customer_key, lock=True)
    if use_config_parameters and terms is None:
        name = encode("run", run_id)
        raise Conflict(f"{name} has no config to take parameters from: pass the parameters.")
    kept = None if use_config_parameters else old.parameters
    new = NewRun(
        customer_key=owner,
        processor_key=row.processor_key,
        config_id=old.config_id,
        flow_id=old.flow_id,
        partition=old.partition,
        mode=old.mode,
        occurrence_time=old.occurrence_time,
        scheduled_time=tx.now() if at is None else at,
        priority=old.priority,
        max_execution_us=None if terms is None else terms.max_execution_us,
        sla_us=None if terms is None or old.sla_met is None else terms.sla_us,
        # Items of one flow never wait for each other.
        ordering_key=old.ordering_key
        or (None if terms is None or old.item_key else terms.ordering_key),
        parameters=kept if parameters is None else parameters,
        correlation_id=old.correlation_id or encode("run", old.root_run_id or run_id),
        parent_run_id=run_id,
        trigger_source="manual",
        item_key=old.item_key,
        item=old.item,
    )
    # A run of a flow started behind the gate of its phase; any other run is gated again.
    is_gated = old.flow_id is None and names.pipeline(old.pipeline, tx=tx).is_gated(row)
    insert = run_insert_gated if is_gated else run_insert_many
    made = insert(tx, [new], actor)
    if not made:
        raise Conflict(f"Another attempt of {encode('run', run_id)} has not ended.")
    cohort_reopen(tx, run_id)
    on_retried(tx, run_id, made[0], actor)
    tx.after_commit(lambda: store.wake([runs_channel(row.pool), *(["flows"] if is_gated else [])]))
    return made[0]


def retry_plan(
    tx: Tx,
    names: NameResolver,
    run_id: int,
    *,
    customer_key: CustomerKey | None,
    lock: bool = False,
) -> RetryPlan:
    """Return the plan of a retry; raise the error that the retry would raise.

    `lock` locks the config, for a transaction that inserts the retry.
    """
    old = run_get(tx, run_id, customer_key)
    if old is None:
        raise NotFound("run", encode("run", run_id))
    if old.finished_at is None:
        raise IllegalTransition("run", encode("run", run_id), old.state, "PENDING (retry)")
    row = _current(tx, names, old)
    owner = customer_get(tx, old.customer_id)
    assert owner is not None
    return RetryPlan(old, row, owner, _terms(tx, old, row, owner, lock=lock))


def _current(tx: Tx, names: NameResolver, old: RunRow) -> ProcessorRow:
    """Return the processor of an ended run; raise Conflict if it is no longer declared."""
    info = names.pipeline(old.pipeline, "pipeline", tx)
    for row in info.processors:
        if row.is_current and (row.phase, row.name) == (old.phase, old.processor):
            return row
    path = f"{old.pipeline}/{old.phase}/{old.processor}"
    raise Conflict(f"{path} is no longer declared: submit a run of another processor.")


def _terms(
    tx: Tx, old: RunRow, row: ProcessorRow, owner: CustomerKey, *, lock: bool
) -> RetryTerms | None:
    """Return the terms of the run's config; raise Conflict while another attempt is live."""
    if old.config_id is not None and lock:
        lock_config(tx, old.config_id)
    if old.item_key and old.flow_id is not None:
        other = run_live_of_item(tx, old.flow_id, row.processor_key, old.item_key)
        if other is not None:
            raise _retried_by(*other)
    same = run_live_same(tx, old, owner)
    if same is not None:
        raise _retried_by(same.run_id, same.state)
    if old.config_id is None:
        return None
    live = run_list_live(tx, RunFilter(customer=owner, config_id=old.config_id, limit=LIVE_MAX))
    return retry_terms(tx, old, row.processor_key, live)


def _retried_by(run_id: int, state: str) -> Conflict:
    name = encode("run", run_id)
    return Conflict(f"{name} already retries this run ({state}): penstock runs show {name}")
