"""Shares SQLite's write lock between processes.

The lock has no queue: a process that finds it taken polls, with pauses of up to `POLL_MAX_S`. A
process that writes again immediately, such as a service that folds many rows in short transactions,
nearly always gets the lock, and the others would wait until it has finished. So a process that held
the lock for `HELD_MAX_S` without such a pause makes one, if other processes are writing.
"""

from __future__ import annotations

from typing import Final

from penstock.core.clock import Clock

POLL_MAX_S: Final = 0.004
"""Longest pause of a process that polls for the lock."""
HELD_MAX_S: Final = 0.05
RECENT_S: Final = 2.0
"""How long a process that found the lock taken assumes that others write."""


class LockSharing:
    """Tracks how long this process held the lock; the caller serializes its own threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._conflicted_at = self._released_at = float("-inf")
        self._held_s = 0.0

    def conflicted(self) -> None:
        """Record that another process held the lock."""
        self._conflicted_at = self._clock.monotonic()
        self._held_s = 0.0

    def released(self, began: float) -> None:
        """Record that a transaction ended."""
        self._released_at = self._clock.monotonic()
        self._held_s += self._released_at - began

    def share(self) -> None:
        """Let other processes write, if they had no opportunity for a while."""
        now = self._clock.monotonic()
        if now - self._released_at > POLL_MAX_S:
            self._held_s = 0.0
        elif self._held_s >= HELD_MAX_S and now - self._conflicted_at < RECENT_S:
            self._held_s = 0.0
            self._clock.sleep(2 * POLL_MAX_S)
