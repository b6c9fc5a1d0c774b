"""Estimated remaining time of work in progress, from earlier durations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from penstock.core.clock import Micros

SAMPLES_MIN: Final = 5
"""Minimum number of durations for an estimate."""
BEYOND: Final = 0.25
"""Share of the elapsed time that is assumed to remain once a run is slower than all earlier ones.
"""


def quantile(ordered: Sequence[Micros], share: float) -> Micros:
    """Return the quantile that a further value stays below with this probability."""
    position = ceil(share * (len(ordered) + 1)) - 1
    return ordered[min(max(position, 0), len(ordered) - 1)]


def remaining(durations: Sequence[Micros], elapsed: Micros, share: float) -> Micros | None:
    """Return the quantile of the remaining time of work that has taken `elapsed` so far.

    None if there are too few durations; a share of the elapsed time if the work is slower than all
    of them.
    """
    if len(durations) < SAMPLES_MIN:
        return None
    left = sorted(one - elapsed for one in durations if one > elapsed)
    return quantile(left, share) if left else max(1, int(elapsed * BEYOND))
