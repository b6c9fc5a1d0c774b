"""Ended runs of all customers by filters without an index: a walk back in time, in windows.

A window has a bounded number of rows, however dense they are, and a page reads a bounded number of
windows; it ends early if that is not enough. The counters of the aggregator say in which quarters
of an hour runs of a processor ended, failed or were cancelled: the time between is skipped, so that
a failure of a month ago is found quickly. Time that the counters do not cover yet is read.
"""

from __future__ import annotations

from typing import Final

from penstock.core.clock import DAY, FAR_FUTURE, MINUTE, SECOND, Micros
from penstock.db.store import Tx, first, one
from penstock.runs.rows import RunRow
from penstock.runs.store.lists.pages import RunFilter, RunPosition, RunsPart, params_of, part_of
from penstock.runs.store.runs import run_of_row

WINDOW_ROWS: Final = 5_000
"""Maximum number of rows per window; a denser window is made shorter."""
VISITED_MAX: Final = 10_000
"""Maximum number of rows that one page visits."""
STEPS_MAX: Final = 40
"""Maximum number of windows that one page reads, not counting those that turn out to be too dense.
"""
QUARTER: Final = 15 * MINUTE
"""Time that one counter covers."""
UNCOUNTED: Final = 512 * DAY
"""Length of the first window before the counters begin, where there are usually no runs."""
GROWTH: Final = 8
"""Maximum factor between the lengths of consecutive windows."""
_QUARTERS: Final = {
    "COMPLETED": "run_quarter_completed",
    "CANCELLED": "run_quarter_cancelled",
    "FAILED": "run_quarter_failed",
    "TIMEOUT": "run_quarter_failed",
    "EXPIRED": "run_quarter_failed",
}


def run_list_by_time(tx: Tx, wanted: RunFilter, position: RunPosition | None) -> RunsPart:
    """Return ended runs after a position, most recently ended first."""
    walk = _Walk(tx, wanted, position)
    rows: list[RunRow] = []
    while len(rows) < wanted.limit:
        found = walk.next_rows(wanted.limit - len(rows))
        if found is None:
            following = None if walk.is_complete else RunPosition(False, walk.upper, 0)
            return RunsPart(rows, following)
        rows += found
    return part_of(rows, wanted)


class _Walk:
    """The windows of one page, newest first."""

    def __init__(self, tx: Tx, wanted: RunFilter, position: RunPosition | None) -> None:
        self._tx = tx
        self._wanted = wanted
        self.upper: Micros = wanted.ended_to
        if position is not None:
            self.upper = min(self.upper, position.at + 1)
        """Everything that ended at this time or later was read."""
        self.is_complete = False
        self._params = params_of(wanted) | {
            "ended_before": FAR_FUTURE if position is None else position.at,
            "before": FAR_FUTURE if position is None else position.run_id,
        }
        self._newest = min(self.upper, tx.now() + 1)
        self._width = QUARTER
        self._visited = self._steps = 0
        self._is_guided = any(
            one is not None
            for one in (wanted.pipeline, wanted.processor, wanted.state, wanted.error_type)
        ) or bool(wanted.is_dead)
        row = first(tx.rows("counter_get", {"name": "analytics_runs_to"}))
        self._folded_to: Micros = 0 if row is None else int(row[0])
        self._counted_from: Micros | None = None

    def next_rows(self, limit: int) -> list[RunRow] | None:
        """Return the runs of the next window; None at the end of the list or of the page."""
        while self._steps < STEPS_MAX and self._visited < VISITED_MAX:
            floor = max(self._floor(), self._wanted.ended_from)
            if self._newest <= floor:
                self.is_complete = True
                return None
            lower = max(floor, self._newest - self._width)
            count, found = self._read(lower, limit)
            length = self._newest - lower
            if count > WINDOW_ROWS and length > SECOND:
                self._width = max(SECOND, length // GROWTH)
                continue
            self._steps += 1
            self._visited += count
            self._width = length * min(GROWTH, WINDOW_ROWS * 3 // 4 // max(count, 1)) or length
            self.upper = self._newest = lower
            if found:
                return found
        return None

    def _read(self, lower: Micros, limit: int) -> tuple[int, list[RunRow]]:
        """Return how many runs ended in a window, and those that match."""
        # A second is read as a whole, however many runs ended in it.
        visited = WINDOW_ROWS + 1 if self._newest - lower > SECOND else FAR_FUTURE
        window = {"ended_from": lower, "ended_to": self.upper, "visited": visited, "limit": limit}
        rows = self._tx.rows("run_list_ended_time", {**self._params, **window})
        count = int(rows[0][0])
        return count, [run_of_row(row[1:]) for row in rows if row[1] is not None]

    def _floor(self) -> Micros:
        """Return how far back to read; skip periods without matching runs."""
        if not self._is_guided:
            return 0
        if self._newest > self._folded_to + 1:
            return self._folded_to + 1
        if self._counted_from is None:
            row = one(self._tx.rows("run_quarter_first"))
            self._counted_from = self._folded_to + 1 if row[0] is None else int(row[0])
        if self._newest <= self._counted_from:
            return 0
        at = self._quarter()
        if at is None:
            self.upper = self._newest = self._counted_from
            self._width = UNCOUNTED
            return 0
        self.upper = self._newest = min(self._newest, at + QUARTER)
        return at

    def _quarter(self) -> Micros | None:
        """Return the newest unread quarter of an hour with matching runs."""
        wanted = self._wanted
        name = _QUARTERS.get(wanted.state or "", "run_quarter_any")
        params = {
            "pipeline": wanted.pipeline,
            "processor": wanted.processor,
            "before": self._newest,
        }
        if wanted.error_type is not None or wanted.is_dead or name == "run_quarter_failed":
            name = "run_quarter_failed"
            params["error_type"] = wanted.error_type
        row = one(self._tx.rows(name, params))
        return None if row[0] is None else int(row[0])
