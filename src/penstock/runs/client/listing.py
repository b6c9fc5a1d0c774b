"""Lists of runs: live runs first, then ended ones, newest first, continued by position."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.clock import FAR_FUTURE
from penstock.db.store import Tx
from penstock.runs.rows import RunRow
from penstock.runs.store.lists.ended_walk import run_list_by_time
from penstock.runs.store.lists.pages import (
    RunFilter,
    RunPosition,
    RunsPart,
    owner_of_config,
    owner_of_flow,
    position_of,
    run_list_ended,
    run_list_running,
    run_list_waiting,
    run_page_live,
    run_search_ended,
)

SEARCH_MAX = 1_000
"""Maximum number of ended runs that a search examines for each kind of prefix."""


def run_page(tx: Tx, wanted: RunFilter, start: RunPosition | RunRow | None = None) -> RunsPart:
    """Return live runs, then ended ones, after a position or a run; other sort orders list only one
    kind.
    """
    found = _with_owner(tx, wanted)
    if found is None:
        return RunsPart([], None)
    wanted = found
    position = position_of(start, wanted) if isinstance(start, RunRow) else start
    if wanted.prefix is not None:
        ids = (*wanted.ids, *run_search_ended(tx, wanted, SEARCH_MAX))
        wanted = replace(wanted, ids=ids)
    if wanted.sort in ("running_for", "waiting_for"):
        if not wanted.has_live:
            return RunsPart([], None)
        read = run_list_running if wanted.sort == "running_for" else run_list_waiting
        return read(tx, wanted, position)
    runs: list[RunRow] = []
    if wanted.has_live and (position is None or position.is_live):
        before = FAR_FUTURE if position is None else position.run_id
        live = run_page_live(tx, replace(wanted, before=before))
        if live.following is not None:
            return live
        runs = live.rows
    if not wanted.has_ended:
        return RunsPart(runs, None)
    # Live runs are ordered by id, ended ones by time: the second list starts at its beginning.
    after = None if position is None or position.is_live else position
    left = replace(wanted, limit=wanted.limit - len(runs))
    if wanted.is_by_time:
        ended = run_list_by_time(tx, left, after)
    else:
        at, before = (FAR_FUTURE, FAR_FUTURE) if after is None else (after.at, after.run_id)
        left = replace(left, occurrence_before=at, ended_before=at, before=before)
        ended = run_list_ended(tx, left)
    return RunsPart(runs + ended.rows, ended.following)


def _with_owner(tx: Tx, wanted: RunFilter) -> RunFilter | None:
    """Add the owner of the filter's config or flow; None if it does not exist or does not match."""
    if wanted.flow_id is not None:
        flow = owner_of_flow(tx, wanted.flow_id)
        if flow is None:
            return None
        customer, correlation_id = flow
        if wanted.customer not in (None, customer):
            return None
        cause = correlation_id if wanted.correlation_id is None else wanted.correlation_id
        wanted = replace(wanted, customer=customer, correlation_id=cause)
    if wanted.customer is None and wanted.config_id is not None:
        owner = owner_of_config(tx, wanted.config_id)
        return None if owner is None else replace(wanted, customer=owner)
    return wanted
