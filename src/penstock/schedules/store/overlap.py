"""Overlap policy of configs: whether another run may start, and at what time."""

from __future__ import annotations

from penstock.core.errors import Conflict
from penstock.core.ids import encode
from penstock.core.naming import ProcessorKey
from penstock.db.store import Tx
from penstock.runs.hooks import RetryTerms
from penstock.runs.rows import RunRow
from penstock.runs.states import Admission
from penstock.runs.store.lists.pages import RunFilter, run_list_live
from penstock.schedules.cadence import CatchUp, Overlap, latest_at_or_before
from penstock.schedules.description import cadence_of
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import config_get, config_lock
from penstock.schedules.store.schedule import schedule_get

LIVE_RUNS_MAX = 100


def free_occurrence(tx: Tx, config: ConfigRow, live: list[RunRow] | None = None) -> int:
    """Return a time, now or just after, that no occurrence or manual start of the config uses."""
    if live is None:
        live = run_list_live(
            tx,
            RunFilter(
                customer=config.customer_key, config_id=config.config_id, limit=LIVE_RUNS_MAX
            ),
        )
    now = tx.now()
    occurrence = max(
        [now, *(run.occurrence_time + 1 for run in live if run.occurrence_time >= now)]
    )
    cadence = cadence_of(config)
    anchor = config.next_run_time or 0
    if (
        cadence is not None
        and latest_at_or_before(cadence, occurrence, occurrence, anchor) == occurrence
    ):
        occurrence += 1
    return occurrence


def free_occurrences(tx: Tx, config: ConfigRow, n: int) -> list[int]:
    """Return `n` different times, now or just after, as `free_occurrence` returns one."""
    cadence, anchor = cadence_of(config), config.next_run_time or 0
    found = [free_occurrence(tx, config)]
    while len(found) < n:
        later = found[-1] + 1
        is_taken = (
            cadence is not None and latest_at_or_before(cadence, later, later, anchor) == later
        )
        found.append(later + is_taken)
    return found


def check_overlap(config: ConfigRow, live: list[RunRow], name: str) -> None:
    """Raise Conflict if the overlap policy forbids another run alongside these live ones."""
    if config.overlap == Overlap.ALLOW or config.catch_up == CatchUp.ALL:
        return
    if config.overlap == Overlap.QUEUE:
        live = [run for run in live if run.admission == Admission.BLOCKED]
    if live:
        what = "already waiting" if config.overlap == Overlap.QUEUE else "not ended"
        raise Conflict(
            f"{encode('run', live[0].run_id)} of {name} is {what} and overlap is "
            f"{config.overlap}: cancel it, wait for it, or change overlap."
        )


def config_lock_for_retry(tx: Tx, config_id: int) -> None:
    """Lock a config and its schedule row; a tick that holds the row finishes first."""
    config_lock(tx, config_id)
    schedule_get(tx, config_id)


def retry_terms(
    tx: Tx, old: RunRow, processor_key: ProcessorKey, live: list[RunRow]
) -> RetryTerms | None:
    """Return the terms of a retry under the run's config; None if the config no longer exists.

    Retries of several occurrences queue behind each other unless the config allows overlap. A live
    run of another occurrence that is not in that queue prevents the retry, just as it prevents a
    start.
    """
    assert old.config_id is not None
    config = config_get(tx, old.config_id)
    if config is None:
        return None
    key = f"config:{config.config_id}:{processor_key}"
    others = [
        run
        for run in live
        if run.ordering_key != key
        and run.occurrence_time != old.occurrence_time
        and (run.flow_id is None or run.flow_id != old.flow_id)
    ]
    if config.overlap != Overlap.QUEUE:
        check_overlap(config, others, encode("cfg", config.config_id))
    return RetryTerms(
        max_execution_us=config.max_execution_us,
        sla_us=config.sla_us,
        parameters=config.parameters,
        ordering_key=None if config.overlap == Overlap.ALLOW else key,
    )
