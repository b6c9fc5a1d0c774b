"""When a system has recovered: its mean throughput after a fault is that of the baseline.

The number of windows is fixed in advance; only the CPU that other programs used, never a
throughput, decides whether a window counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.harness.machine_load import SIMILAR

RECOVERED: Final = 0.95
WINDOWS: Final = 12
"""Windows that are measured after a fault; recovery is the mean of their shares.

Shares of single windows of ten seconds differ by 5 % (standard deviation) without a fault: with
twelve windows before it and after it the measure is exact to 2 %, with five to 3 %.
"""
REPEATS_MAX: Final = 24
"""The same with the windows that cannot be compared, because other programs ran."""


class Window(NamedTuple):
    """A time after the fault: its share of the baseline, and the CPU of other programs."""

    share: float
    others: float

    def is_comparable(self, others: float) -> bool:
        """Whether other programs used about as much as before the fault, which is `others`."""
        return abs(self.others - others) <= SIMILAR


def comparable(after: Sequence[Window], others: float) -> list[Window]:
    """Return the windows that count, at most as many as are needed."""
    return [one for one in after if one.is_comparable(others)][:WINDOWS]


def is_measured(after: Sequence[Window], others: float) -> bool:
    """Return whether enough windows count, or too many were disturbed to go on."""
    return len(comparable(after, others)) >= WINDOWS or len(after) >= REPEATS_MAX


def recovery_of(after: Sequence[Window], others: float) -> float | None:
    """Return the mean share of the baseline; None if too few windows count."""
    counted = comparable(after, others)
    if len(counted) < WINDOWS:
        return None
    return round(statistics.mean(one.share for one in counted), 3)
