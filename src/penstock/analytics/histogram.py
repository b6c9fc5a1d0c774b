"""Histograms of durations whose quantiles are within five percent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log
from typing import Final

from penstock.core.clock import MILLISECOND, Micros

STEP: Final = 1.1
"""Upper bound of a bucket, relative to the bucket below it."""


def bucket_of(duration_us: Micros) -> int:
    """Return the bucket of a duration; 0 holds everything up to a millisecond."""
    if duration_us <= MILLISECOND:
        return 0
    return ceil(log(duration_us / MILLISECOND) / log(STEP))


def middle_of(bucket: int) -> Micros:
    """Return the duration that represents a bucket: the middle between its bounds."""
    if bucket == 0:
        return MILLISECOND
    return round(MILLISECOND * STEP**bucket * (1 + 1 / STEP) / 2)


def quantile_of(buckets: Mapping[int, int], share: float) -> Micros | None:
    """Return the duration below which this share of the items lies; None if there are no items."""
    total = sum(buckets.values())
    if total <= 0:
        return None
    wanted, seen = max(1, ceil(share * total)), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return middle_of(bucket)
    return None
