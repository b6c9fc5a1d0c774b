"""Throughput over time: samples of how many runs have ended, and rates between them."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
from collections.abc import Callable, Sequence
from typing import Final

from penstock.core.clock import SystemClock
from tests.harness.recovered import RECOVERED

CLOCK: Final = SystemClock()
SAMPLE_SECONDS: Final = 1.0


class Sampler(threading.Thread):
    """Records how many runs have ended, every second; a time without a response has no sample."""

    def __init__(self, ended: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._ended = ended
        self._stopping = threading.Event()
        self.samples: list[tuple[float, int]] = []

    def run(self) -> None:
        """Sample until stopped."""
        while not self._stopping.wait(SAMPLE_SECONDS):
            with contextlib.suppress(Exception):
                self.samples.append((CLOCK.monotonic(), self._ended()))

    def stop(self) -> None:
        """Stop sampling."""
        self._stopping.set()
        self.join()


def rates(samples: Sequence[tuple[float, int]], since: float, until: float) -> list[float]:
    """Return the runs per second between consecutive samples of a time."""
    inside = [one for one in samples if since <= one[0] <= until]
    return [
        (after[1] - before[1]) / (after[0] - before[0])
        for before, after in itertools.pairwise(inside)
    ]


def mean_rate(samples: Sequence[tuple[float, int]], since: float, until: float) -> float:
    """Return the runs per second over a whole time, parts without a response included."""
    start = [one for one in samples if one[0] <= since][-1:] or samples[:1]
    end = [one for one in samples if one[0] >= until][:1] or samples[-1:]
    if not samples or end[0][0] <= start[0][0]:
        return 0.0
    return (end[0][1] - start[0][1]) / (end[0][0] - start[0][0])


def baseline_rates(samples: Sequence[tuple[float, int]], parts: Sequence[float]) -> list[float]:
    """Return the runs per second of each window before a fault.

    The last sample before the fault ends them: the next one may come only after it.
    """
    known = [one for one in samples if one[0] <= parts[-1]]
    return [mean_rate(known, *part) for part in itertools.pairwise(parts)]


def recovery_seconds(
    samples: Sequence[tuple[float, int]], healed: float, until: float, baseline: float
) -> float | None:
    """Return the time from the end of a fault to three seconds at the baseline; None if never."""
    inside = [one for one in samples if healed <= one[0] <= until]
    for number in range(3, len(inside)):
        window = rates(inside[number - 3 : number + 1], healed, until)
        if statistics.median(window) >= RECOVERED * baseline:
            return inside[number - 3][0] - healed
    return None
