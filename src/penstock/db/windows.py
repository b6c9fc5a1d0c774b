"""Read a log in bounded time windows, however large it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.core.clock import DAY, SECOND, Micros
from penstock.db.store import Row

WINDOW_MAX: Final = 7 * DAY
EVERYTHING: Final = 10**9


class Window(NamedTuple):
    """The rows of a window, its end, and how long the next one should be."""

    rows: list[Row]
    to: Micros
    next_us: Micros


def window_read(
    read: Callable[[Micros, Micros, int], list[Row]],
    after: Micros,
    until: Micros,
    *,
    window_us: Micros,
    page: int,
) -> Window:
    """Read the rows after one time up to another; a window with too many rows is halved.

    read: returns the rows in (after, to], up to a maximum number. A second is always read as a
    whole, so that a window never ends between rows of the same time.
    """
    while True:
        to = min(until, after + window_us)
        is_least = to - after <= SECOND
        rows = read(after, to, EVERYTHING if is_least else page + 1)
        if len(rows) <= page or is_least:
            break
        window_us = max(SECOND, (to - after) // 2)
    wider = min(WINDOW_MAX, 2 * window_us) if len(rows) <= page // 4 else window_us
    return Window(rows, to, wider)
