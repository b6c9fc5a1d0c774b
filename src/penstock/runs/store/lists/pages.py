"""Lists of runs: live ones, then ended ones, in pages that visit a bounded number of rows.

A page of ended runs is found by the index of its most selective filter: an id, a correlation id
(also that of a flow), a message, a customer's partition, a customer. Filters without an index are
checked on the rows found this way. A page that visited too many of them ends early, with the
position at which the next continues. Filters of all customers walk back in time (`ended_walk`).

Live runs are found by their flow, config, message or correlation id, or are those that a worker
holds; else pages read a bounded number of them in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.core.clock import FAR_FUTURE, Micros
from penstock.db.store import Tx, first
from penstock.runs.rows import RunRow
from penstock.runs.states import LIVE, Admission
from penstock.runs.store.runs import run_of_row

VISITED_FIRST: Final = 500
VISITED_MAX: Final = 10_000
"""Number of live runs, or of ended runs of a customer, that one page examines; it starts small,
which often suffices."""
HELD: Final = ("CLAIMED", "RUNNING")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Filter, order and page of a list of runs.

    (occurrence_before, before) continues an earlier page; (ended_before, before) continues a page
    that is ordered by end.
    """

    customer: int | None = None
    config_id: int | None = None
    pipeline: int | None = None
    processor: str | None = None
    """Name of a processor, or phase and name with a dot between them."""
    state: str | None = None
    partition: str | None = None
    correlation_id: str | None = None
    message_id: str | None = None
    error_type: str | None = None
    sla_met: bool | None = None
    flow_id: int | None = None
    is_dead: bool | None = None
    waits_from: int = Admission.READY
    waits_to: int = Admission.NONE
    """Range of admission marks; all of them by default."""
    ended_from: int = 0
    ended_to: int = FAR_FUTURE
    sort: str = "newest"
    """newest, running_for (longest first), waiting_for (oldest first), ended_at (latest first)."""
    prefix: str | None = None
    """Prefix of a correlation id or partition, for live runs; `ids` has the ended runs."""
    prefix_end: str | None = None
    ids: Sequence[int] = ()
    """Runs that a search found; they match without the prefix."""
    occurrence_from: int = 0
    occurrence_to: int = FAR_FUTURE
    occurrence_before: int = FAR_FUTURE
    ended_before: int = FAR_FUTURE
    before: int = FAR_FUTURE
    limit: int = 50
    offset: int = 0

    @property
    def is_by_end(self) -> bool:
        """Whether only ended runs are listed, in the order of their end."""
        return self.sort == "ended_at" or self.ended_from > 0 or self.ended_to < FAR_FUTURE

    @property
    def is_by_time(self) -> bool:
        """Whether ended runs are found by the time of their end, because no other index applies."""
        indexed = (self.prefix, self.correlation_id, self.message_id, self.customer)
        is_other = self.has_other_filters or self.is_by_end
        return is_other and all(one is None for one in indexed)

    @property
    def has_live(self) -> bool:
        """Whether a live run can match."""
        is_ended = self.error_type is not None or self.is_dead is True or self.is_by_end
        return self.state in (None, *LIVE) and not is_ended

    @property
    def has_ended(self) -> bool:
        """Whether an ended run can match."""
        is_pending = self.waits_to < Admission.NONE
        return self.state not in LIVE and not is_pending

    @property
    def has_other_filters(self) -> bool:
        """Whether ended runs are filtered by more than the customer and the scheduled time."""
        others = (self.config_id, self.pipeline, self.processor, self.state, self.partition,
                  self.error_type, self.sla_met, self.is_dead, self.flow_id)  # fmt: skip
        return any(one is not None for one in others) or (self.customer is None and self.is_timed)

    @property
    def is_timed(self) -> bool:
        """Whether runs are filtered by their scheduled time."""
        return self.occurrence_from > 0 or self.occurrence_to < FAR_FUTURE

    @property
    def has_live_filters(self) -> bool:
        """Whether live runs are filtered by more than the customer."""
        is_marked = self.waits_to < Admission.NONE or self.prefix is not None
        return self.has_other_filters or is_marked or self.is_timed


class RunPosition(NamedTuple):
    """Position in a list of runs: the next page continues after it."""

    is_live: bool
    at: Micros
    """Scheduled time, or what the list is ordered by: the start or the end of the run."""
    run_id: int


class RunsPart(NamedTuple):
    """A part of a list of runs, and the position at which it continues; the part may be short."""

    rows: list[RunRow]
    following: RunPosition | None


def position_of(run: RunRow, wanted: RunFilter) -> RunPosition:
    """Return the position of a run in a list."""
    is_live = run.finished_at is None
    if run.finished_at is not None and (wanted.is_by_time or wanted.is_by_end):
        return RunPosition(is_live, run.finished_at, run.run_id)
    if wanted.sort == "running_for":
        return RunPosition(is_live, run.started_at or 0, run.run_id)
    return RunPosition(is_live, run.occurrence_time, run.run_id)


def run_list_live(tx: Tx, wanted: RunFilter) -> list[RunRow]:
    """Return queued, claimed and running runs, newest first."""
    return run_page_live(tx, wanted).rows


def run_page_live(tx: Tx, wanted: RunFilter) -> RunsPart:
    """Return the same runs, with the position at which the list continues."""
    if wanted.flow_id is not None:
        name = "run_list_live_flow"
    elif wanted.message_id is not None:
        name = "run_list_live_message"
    elif wanted.correlation_id is not None:
        name = "run_list_live_correlation"
    elif wanted.state in HELD:
        name = "run_list_live_held"
    elif wanted.customer is not None and wanted.config_id is not None:
        name = "run_list_live_config"
    else:
        names = ("run_list_live", "run_window_live")
        if wanted.customer is not None:
            names = ("run_list_live_customer", "run_window_live_customer")
        return _windowed(tx, wanted, names, is_live=True, is_filtered=wanted.has_live_filters)
    return part_of([run_of_row(row) for row in tx.rows(name, params_of(wanted))], wanted)


def run_list_running(tx: Tx, wanted: RunFilter, position: RunPosition | None = None) -> RunsPart:
    """Return running runs after a position, longest-running first."""
    started, after = (0, 0) if position is None else (position.at, position.run_id)
    params = params_of(wanted) | {"started_after": started, "after": after}
    return part_of([run_of_row(row) for row in tx.rows("run_list_running", params)], wanted)


def run_list_waiting(tx: Tx, wanted: RunFilter, position: RunPosition | None) -> RunsPart:
    """Return due pending runs after a position, oldest first."""
    after = 0 if position is None else position.run_id
    names = ("run_list_waiting", "run_window_waiting")
    if wanted.customer is not None:
        names = ("run_list_waiting_customer", "run_window_waiting_customer")
    return _windowed(tx, wanted, names, is_live=True, is_filtered=True, after=after)


def run_list_ended(tx: Tx, wanted: RunFilter) -> RunsPart:
    """Return ended runs, newest first: those of a customer by scheduled time, others by id.

    If only ended runs are listed, they are ordered by end.
    """
    if wanted.prefix is not None:
        name = "run_list_ended_ids"
    elif wanted.correlation_id is not None:
        name = "run_list_ended_correlation"
    elif wanted.message_id is not None:
        name = "run_list_ended_message"
    elif wanted.customer is None:
        assert not wanted.is_by_time, "walk back in time instead"
        name = "run_list_ended"
    elif wanted.partition is not None:
        name = "run_list_ended_partition"
    elif wanted.is_by_end:
        names = ("run_list_ended_customer_end", "run_window_customer_end")
        is_filtered = wanted.has_other_filters or wanted.is_timed
        return _windowed(tx, wanted, names, is_filtered=is_filtered)
    else:
        names = ("run_list_ended_customer", "run_window_customer")
        return _windowed(tx, wanted, names, is_filtered=wanted.has_other_filters)
    return part_of([run_of_row(row) for row in tx.rows(name, params_of(wanted))], wanted)


def _windowed(
    tx: Tx,
    wanted: RunFilter,
    names: tuple[str, str],
    *,
    is_filtered: bool,
    is_live: bool = False,
    **more: int,
) -> RunsPart:
    """Return the matching runs of the next window of rows; its end is the next position."""
    list_name, end_name = names
    least = wanted.limit + wanted.offset
    following: RunPosition | None = None
    rows: list[RunRow] = []
    for size in (max(least, VISITED_FIRST), VISITED_MAX) if is_filtered else (least,):
        params = params_of(wanted) | {"visited": size} | more
        rows = [run_of_row(row) for row in tx.rows(list_name, params)]
        if len(rows) == wanted.limit:
            return part_of(rows, wanted)
        end = first(tx.rows(end_name, params))
        if end is None:
            return RunsPart(rows, None)
        following = RunPosition(is_live, end[0], end[1])
    return RunsPart(rows, following)


def part_of(rows: list[RunRow], wanted: RunFilter) -> RunsPart:
    """Return rows, with the position after the last one if the page is full."""
    is_full = len(rows) >= wanted.limit
    return RunsPart(rows, position_of(rows[-1], wanted) if is_full else None)


def owner_of_config(tx: Tx, config_id: int) -> int | None:
    """Return the customer of a config; None if there is no such config."""
    row = first(tx.rows("run_config_owner", {"config_id": config_id}))
    return None if row is None else int(row[0])


def owner_of_flow(tx: Tx, flow_id: int) -> tuple[int, str] | None:
    """Return the customer and the correlation id of a flow; None if there is no such flow."""
    row = first(tx.rows("run_flow_owner", {"flow_id": flow_id}))
    return None if row is None else (int(row[0]), str(row[1]))


def run_search_ended(tx: Tx, wanted: RunFilter, n: int) -> list[int]:
    """Return at most `n` ended runs by prefix of the correlation id, and `n` by prefix of the
    partition.

    Partitions are searched only for one customer, because other customers have the same ones.
    """
    params = {
        "prefix": wanted.prefix,
        "prefix_end": wanted.prefix_end,
        "customer": wanted.customer,
        "n": n,
    }
    found = [row[0] for row in tx.rows("run_search_correlation", params)]
    if wanted.customer is not None:
        found += [row[0] for row in tx.rows("run_search_partition", params)]
    return found


def params_of(wanted: RunFilter) -> dict[str, Any]:
    """Return the parameters of a list."""
    values = {name: getattr(wanted, name) for name in RunFilter.__slots__}
    by_end = wanted.is_by_end
    ended_before = wanted.ended_before if by_end else 0
    return values | {"ids": list(wanted.ids), "by_end": by_end, "ended_before": ended_before}
