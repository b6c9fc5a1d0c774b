"""Retry of an ended run, now or later, as a new chain of attempts.

A manual retry and the replay of a dead letter share this code path: the new run copies the old one
under the current declaration, and the same transaction closes the dead letter.
"""

from __future__ import annotations

from penstock.client.names import Names
from penstock.client.starting import LOOK, check_overlap, free_slot
from penstock.core.errors import Conflict, IllegalTransition, NotFound
from penstock.core.ids import encode
from penstock.core.model import Config, NewRun, ProcessorRow, Run
from penstock.store.api import Store, Tx
from penstock.store.configs import config_get, config_lock
from penstock.store.inbox import dead_letter_get, dead_letter_resolve_many, run_again_lock
from penstock.store.registry import customer_get
from penstock.store.runs import RunFilter, run_get, run_insert_many, run_list_live
from penstock.store.schedule import schedule_get


def run_again(
    tx: Tx,
    store: Store,
    names: Names,
    run_id: int,
    *,
    customer: int | None,
    actor: str,
    at: int | None = None,
    parameters: str | None = None,
) -> int:
    """Insert a run that retries an ended one; `parameters` (JSON) replace the old parameters.

    `at` is the scheduled time of the new run in microseconds; None means now.
    """
    run_again_lock(tx, run_id)
    old = run_get(tx, run_id, customer)
    if old is None:
        raise NotFound("run", encode("run", run_id))
    if old.finished_at is None:
        raise IllegalTransition("run", encode("run", run_id), old.state, "PENDING (retry)")
    row = _current(tx, names, old)
    owner = customer_get(tx, old.customer_id)
    assert owner is not None
    config = _config_for_retry(tx, old, owner)
    kept = None if config is not None else old.parameters
    new = NewRun(
        customer=owner,
        processor=row.processor,
        config_id=old.config_id,
        flow_id=old.flow_id,
        partition=old.partition,
        mode=old.mode,
        slot=None if config is None else free_slot(tx, config),
        scheduled_time=tx.now() if at is None else at,
        priority=old.priority,
        max_execution_us=None if config is None else config.max_execution_us,
        sla_us=None if config is None else config.sla_us,
        ordering_key=old.ordering_key,
        parameters=kept if parameters is None else parameters,
        correlation_id=old.correlation_id or encode("run", old.root_run_id or run_id),
        parent_run_id=run_id,
        trigger_source="manual",
    )
    new_id = run_insert_many(tx, [new], actor)[0]
    dead_letter = dead_letter_get(tx, run_id=run_id)
    if dead_letter is not None:
        closed = [(dead_letter.dead_letter_id, f"replayed as {encode('run', new_id)}")]
        dead_letter_resolve_many(tx, closed, status="replayed", actor=actor)
    tx.after_commit(lambda: store.wake([f"runs:{row.pool}"]))
    return new_id


def _current(tx: Tx, names: Names, old: Run) -> ProcessorRow:
    """Return the processor of an ended run; raise Conflict if it is no longer declared."""
    info = names.pipeline(old.pipeline, "pipeline", tx)
    for row in info.processors:
        if row.is_current and (row.phase, row.name) == (old.phase, old.processor):
            return row
    path = f"{old.pipeline}/{old.phase}/{old.processor}"
    raise Conflict(f"{path} is no longer declared: submit a run of another processor.")


def _config_for_retry(tx: Tx, old: Run, owner: int) -> Config | None:
    """Lock the run's config and return it; raise Conflict while another attempt is live."""
    root = old.root_run_id or old.run_id
    if old.config_id is not None:
        config_lock(tx, old.config_id)
        schedule_get(tx, old.config_id)  # wait for a scheduler tick that holds the row
    live = run_list_live(tx, RunFilter(customer=owner, config_id=old.config_id, limit=LOOK))
    for run in live:
        if root in (run.root_run_id, run.run_id) or run.parent_run_id == old.run_id:
            name = encode("run", run.run_id)
            raise Conflict(
                f"{name} already retries this run ({run.state}): penstock runs show {name}"
            )
    config = None if old.config_id is None else config_get(tx, old.config_id)
    if config is not None:
        check_overlap(config, live, encode("cfg", config.config_id))
    return config
