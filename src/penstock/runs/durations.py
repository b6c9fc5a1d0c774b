"""What is left of something that has run for a while, by how long it took before. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from penstock.core.clock import Micros

SAMPLES_MIN: Final = 5
"""Fewer durations than this give no estimate."""
BEYOND: Final = 0.25
"""Share of the time so far that something is assumed to need still, once it is slower than ever."""


def quantile(ordered: Sequence[Micros], share: float) -> Micros:
    """Return the value that a further one stays below with this probability."""
    position = ceil(share * (len(ordered) + 1)) - 1
    return ordered[min(max(position, 0), len(ordered) - 1)]


def remaining(durations: Sequence[Micros], elapsed: Micros, share: float) -> Micros | None:
    """Return the quantile of what is left of something that has taken `elapsed` so far.

    None with too few durations. Once it is slower than all, a share of the time so far.
    """
    if len(durations) < SAMPLES_MIN:
        return None
    left = sorted(one - elapsed for one in durations if one > elapsed)
    return quantile(left, share) if left else max(1, int(elapsed * BEYOND))
