"""Lists of runs: live runs first, then ended ones, newest first, continued by position."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from penstock.core.clock import FAR_FUTURE, Micros
from penstock.core.fields import check_text
from penstock.core.ids import decode_or_none
from penstock.db.store import Tx
from penstock.runs.rows import RunRow
from penstock.runs.states import LIVE
from penstock.runs.store.runs import (
    RunFilter,
    run_list_ended,
    run_list_live,
    run_search_ended,
)

SEARCH_MAX = 1_000
"""How many ended runs a search looks at for each kind of prefix."""
LAST_CHARACTER = "\U0010ffff"


class RunPosition(NamedTuple):
    """Position in a list of runs: the next page continues after this run."""

    is_live: bool
    occurrence_time: Micros
    run_id: int


def position_of(run: RunRow) -> RunPosition:
    """Return the position of a run in a list."""
    return RunPosition(run.finished_at is None, run.occurrence_time, run.run_id)


def run_page(tx: Tx, wanted: RunFilter, position: RunPosition | None = None) -> list[RunRow]:
    """Return live runs, then ended ones, after a position."""
    if wanted.prefix is not None:
        ids = (*wanted.ids, *run_search_ended(tx, wanted, SEARCH_MAX))
        wanted = replace(wanted, ids=ids)
    found = replace(wanted, before=FAR_FUTURE)
    runs: list[RunRow] = []
    is_live = wanted.state in (None, *LIVE) and wanted.error_type is None
    if is_live and (position is None or position.is_live):
        before = FAR_FUTURE if position is None else position.run_id
        runs = run_list_live(tx, replace(found, before=before))
    if wanted.state in LIVE or len(runs) == wanted.limit:
        return runs
    # Live runs are ordered by id, ended ones by scheduled time and id: the second list starts at
    # its top.
    if position is not None and not position.is_live:
        found = replace(found, before=position.run_id, occurrence_before=position.occurrence_time)
    return runs + run_list_ended(tx, replace(found, limit=wanted.limit - len(runs)))


def searched(text: str) -> RunFilter:
    """Return the filter of a search: the id of a run, or the beginning of a correlation id or of a
    partition.

    Ids of runs are scrambled, so only a whole id is found.
    """
    check_text("search", text)
    number = decode_or_none("run", text)
    ids = () if number is None else (number,)
    return RunFilter(prefix=text, prefix_end=text + LAST_CHARACTER, ids=ids)
