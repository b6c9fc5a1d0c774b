"""Estimates for a limit: when requests are granted, how much of a rate is used. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from penstock.core.clock import MINUTE, Micros


def median_hold(holds: Sequence[Micros]) -> Micros | None:
    """Return the median duration of recent holds; None without any."""
    return sorted(holds)[len(holds) // 2] if holds else None


def estimated_grants(
    weights: Sequence[int],
    holders: Sequence[tuple[Micros, int]],
    *,
    held: int,
    effective: int | None,
    hold: Micros | None,
    now: Micros,
) -> list[Micros | None]:
    """Return when each request of a queue is likely to get its slot; None if that is unknown.

    `weights` are those of the waiting requests, in order; `holders` have (since, weight); `held`
    is the weight of all holders, including those not given. Each hold is assumed to last `hold`;
    one that has already lasted longer is assumed to end in half of `hold` from now.
    """
    if not effective or hold is None:
        return [None] * len(weights)
    ends = [
        (since + hold if since + hold > now else now + hold // 2, weight)
        for since, weight in holders
    ]
    heapq.heapify(ends)
    free, at = effective - held, now
    grants: list[Micros | None] = []
    for weight in weights:
        needed = min(weight, effective)
        while free < needed and ends:
            end, freed = heapq.heappop(ends)
            at, free = max(at, end), free + freed
        if free < needed:
            break
        grants.append(at)
        free -= needed
        heapq.heappush(ends, (at + hold, needed))
    return grants + [None] * (len(weights) - len(grants))


def taken_last_minute(now: Micros, *, minute: int, taken: int, before: int) -> int:
    """Return the approximate number of tokens granted in the last 60 seconds.

    `minute` is the number of the minute in which `taken` tokens were granted; `before` tokens were
    granted in the minute before it. Tokens of the earlier minute count in proportion to its share
    of the 60 seconds.
    """
    passed = now // MINUTE - minute
    if passed not in (0, 1):
        return 0
    recent, earlier = (taken, before) if passed == 0 else (0, taken)
    return recent + round(earlier * (MINUTE - now % MINUTE) / MINUTE)
