"""The number of runs to claim: the free capacity for long runs, a batch ahead for tiny ones.

A long run is claimed only when it can start immediately, so that other workers can take it. Tiny
runs (mean below 20 ms) are claimed ahead, about 150 ms of work, because a claim costs more than
they do. Pure arithmetic over what the executors measured; an update lost between threads makes the
mean slightly older and has no other effect.
"""

from __future__ import annotations

from typing import Final

LONG_SECONDS: Final = 0.020
AHEAD_SECONDS: Final = 0.150
CHUNK_SECONDS: Final = 0.010
_KEEP = 0.9


class ClaimSizer:
    """Mean duration of recent runs, and the claim sizes derived from it."""

    __slots__ = ("_batch_max", "_concurrency", "mean_s")

    def __init__(self, concurrency: int, batch_max: int) -> None:
        self._concurrency = concurrency
        self._batch_max = batch_max
        self.mean_s = LONG_SECONDS * 2
        """Seconds; runs are assumed to be long until measured as short."""

    @property
    def is_long(self) -> bool:
        """Whether runs are long enough to be claimed one by one."""
        return self.mean_s >= LONG_SECONDS

    def observe(self, count: int, seconds: float) -> None:
        """Update the mean with `count` runs that took `seconds` in total."""
        if count:
            keep = _KEEP**count
            self.mean_s = self.mean_s * keep + (seconds / count) * (1 - keep)

    def claim_size(self, load: int) -> int:
        """Return how many more runs to claim when `load` are waiting or running."""
        if self.is_long:
            return max(0, min(self._concurrency - load, self._batch_max))
        ahead = int(AHEAD_SECONDS * self._concurrency / max(self.mean_s, 1e-6))
        target = max(self._concurrency, min(ahead, 2 * self._batch_max))
        missing = target - load
        # Small claims would cause many small transactions: wait until half a claim is needed.
        return min(missing, self._batch_max) if missing * 2 >= min(target, self._batch_max) else 0

    def rest_seconds(self, runs: int) -> float:
        """Return how long a number of runs will probably take."""
        return runs * self.mean_s / self._concurrency

    def chunk_size(self) -> int:
        """Return how many runs one thread takes at a time."""
        if self.is_long:
            return 1
        return max(1, min(self._batch_max, int(CHUNK_SECONDS / max(self.mean_s, 1e-6))))
