"""The number of workers that a pool needs, from its queue and recent durations. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from penstock.core.clock import MINUTE, SECOND, Micros

DRAIN_US: Final = 5 * MINUTE
"""Time in which the queue should be drained."""
WINDOW_US: Final = 15 * MINUTE
CONCURRENCY_DEFAULT: Final = 5
MEAN_DEFAULT: Final = 30 * SECOND
"""Assumed duration of a run while none has ended."""
WORKERS_MAX: Final = 10_000


class Load(NamedTuple):
    """Measurements of a pool."""

    ready: int
    running: int
    workers: int
    concurrency: int
    runs: int
    """Runs that ended in the window."""
    duration_us: Micros
    """Total duration of these runs."""

    @property
    def mean_us(self) -> Micros | None:
        """Mean duration of the runs that ended in the window."""
        return self.duration_us // self.runs if self.runs else None


def desired_concurrency(load: Load) -> int:
    """Return how many runs must be executed at the same time.

    The larger of the runs in progress and the completion rate times the mean duration, plus what is
    needed to drain the queue in time; 0 if there is no work.
    """
    mean = load.mean_us or MEAN_DEFAULT
    steady = max(float(load.running), load.duration_us / WINDOW_US if load.running else 0.0)
    backlog = min(float(load.ready), load.ready * mean / DRAIN_US)
    wanted = ceil(steady + backlog)
    return max(wanted, 1) if load.ready or load.running else 0


def desired_workers(load: Load) -> int:
    """Return the number of workers for that concurrency, at the current concurrency of each."""
    each = max(1, load.concurrency // load.workers) if load.workers else CONCURRENCY_DEFAULT
    return min(WORKERS_MAX, ceil(desired_concurrency(load) / each))
