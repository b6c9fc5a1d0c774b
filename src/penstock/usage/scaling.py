"""How many workers a pool needs, from its queue and recent durations. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from penstock.core.clock import MINUTE, SECOND, Micros

DRAIN_US: Final = 5 * MINUTE
"""Time in which the queue should be worked off."""
WINDOW_US: Final = 15 * MINUTE
CONCURRENCY_DEFAULT: Final = 5
MEAN_DEFAULT: Final = 30 * SECOND
"""Assumed duration of a run while none has ended."""
WORKERS_MAX: Final = 10_000


class Load(NamedTuple):
    """What is known about a pool."""

    ready: int
    running: int
    workers: int
    concurrency: int
    runs: int
    """Runs that ended in the window."""
    duration_us: Micros
    """Their durations, in total."""

    @property
    def mean_us(self) -> Micros | None:
        """Mean duration of the runs that ended in the window."""
        return self.duration_us // self.runs if self.runs else None


def desired_concurrency(load: Load) -> int:
    """Return how many runs must be executed at the same time.

    What runs now, or what ended per time multiplied by its duration, whichever is more; and what it
    takes to work off the queue in time. Nothing to do needs nothing.
    """
    mean = load.mean_us or MEAN_DEFAULT
    steady = max(float(load.running), load.duration_us / WINDOW_US if load.running else 0.0)
    backlog = min(float(load.ready), load.ready * mean / DRAIN_US)
    wanted = ceil(steady + backlog)
    return max(wanted, 1) if load.ready or load.running else 0


def desired_workers(load: Load) -> int:
    """Return how many workers that needs, with the concurrency that workers have now."""
    each = max(1, load.concurrency // load.workers) if load.workers else CONCURRENCY_DEFAULT
    return min(WORKERS_MAX, ceil(desired_concurrency(load) / each))
