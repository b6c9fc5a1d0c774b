"""When a system has recovered: its throughput is that of the baseline, on a similar machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.harness.machine_load import SIMILAR

RECOVERED: Final = 0.95
WINDOWS_MAX: Final = 4
"""Times that the throughput is measured after a fault, until one reaches the baseline."""
REPEATS_MAX: Final = 12
"""The same with the times that cannot be compared, because other programs ran."""


class Window(NamedTuple):
    """A time after the fault: its share of the baseline's throughput, and the CPU of others."""

    share: float
    others: float

    def decides(self, others: float) -> bool:
        """Whether other programs, which used `others` before, do not explain its share."""
        if self.share >= RECOVERED:
            return self.others >= others - SIMILAR
        return self.others <= others + SIMILAR


def is_decided(after: Sequence[Window], others: float) -> bool:
    """Return whether enough was measured: the baseline is reached, or was missed often enough."""
    counted = [one for one in after if one.decides(others)]
    if counted and counted[-1] is after[-1] and counted[-1].share >= RECOVERED:
        return True
    return len(counted) >= WINDOWS_MAX or len(after) >= REPEATS_MAX
