"""Retry of an ended run, now or later, as a new chain of attempts.

A manual retry and the replay of a dead letter share this code path: the new run copies the old one
under the current declaration, and the same transaction closes the dead letter.
"""

from __future__ import annotations

from penstock.access.store.names import NameResolver
from penstock.access.store.registry import ProcessorRow, customer_get
from penstock.core.errors import Conflict, IllegalTransition, NotFound
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx
from penstock.runs.hooks import RetryTerms, lock_config, on_retried, retry_terms
from penstock.runs.rows import NewRun, RunRow
from penstock.runs.store.gated import run_insert_mixed
from penstock.runs.store.runs import (
    RunFilter,
    run_get,
    run_list_live,
    run_retry_lock,
)

LIVE_MAX = 100
"""How many live runs of a config are searched for another attempt."""


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
) -> int:
    """Insert a run that retries an ended one; `parameters` (JSON) replace the old parameters.

    `at` is the scheduled time of the new run in microseconds; None means now.
    """
    run_retry_lock(tx, run_id)
    old = run_get(tx, run_id, customer_key)
    if old is None:
        raise NotFound("run", encode("run", run_id))
    if old.finished_at is None:
        raise IllegalTransition("run", encode("run", run_id), old.state, "PENDING (retry)")
    row = _current(tx, names, old)
    owner = customer_get(tx, old.customer_id)
    assert owner is not None
    terms = _terms(tx, old, owner)
    kept = None if terms is not None else old.parameters
    new = NewRun(
        customer_key=owner,
        processor_key=row.processor_key,
        config_id=old.config_id,
        flow_id=old.flow_id,
        partition=old.partition,
        mode=old.mode,
        occurrence_time=None if terms is None else terms.slot,
        scheduled_time=tx.now() if at is None else at,
        priority=old.priority,
        max_execution_us=None if terms is None else terms.max_execution_us,
        sla_us=None if terms is None else terms.sla_us,
        ordering_key=old.ordering_key,
        parameters=kept if parameters is None else parameters,
        correlation_id=old.correlation_id or encode("run", old.root_run_id or run_id),
        parent_run_id=run_id,
        trigger_source="manual",
    )
    # A run of a flow started behind the gate of its phase; any other one asks its gate again.
    is_gated = old.flow_id is None and names.pipeline(old.pipeline, tx=tx).is_gated(row)
    new_id = run_insert_mixed(tx, [new], [is_gated], actor)[0]
    on_retried(tx, run_id, new_id, actor)
    tx.after_commit(lambda: store.wake([f"runs:{row.pool}", *(["flows"] if is_gated else [])]))
    return new_id


def _current(tx: Tx, names: NameResolver, old: RunRow) -> ProcessorRow:
    """Return the processor of an ended run; raise Conflict if it is no longer declared."""
    info = names.pipeline(old.pipeline, "pipeline", tx)
    for row in info.processors:
        if row.is_current and (row.phase, row.name) == (old.phase, old.processor):
            return row
    path = f"{old.pipeline}/{old.phase}/{old.processor}"
    raise Conflict(f"{path} is no longer declared: submit a run of another processor.")


def _terms(tx: Tx, old: RunRow, owner: int) -> RetryTerms | None:
    """Lock the run's config and return its terms; raise Conflict while another attempt is live."""
    root = old.root_run_id or old.run_id
    if old.config_id is not None:
        lock_config(tx, old.config_id)
    live = run_list_live(tx, RunFilter(customer=owner, config_id=old.config_id, limit=LIVE_MAX))
    for run in live:
        if root in (run.root_run_id, run.run_id) or run.parent_run_id == old.run_id:
            name = encode("run", run.run_id)
            raise Conflict(
                f"{name} already retries this run ({run.state}): penstock runs show {name}"
            )
    return None if old.config_id is None else retry_terms(tx, old.config_id, live)
