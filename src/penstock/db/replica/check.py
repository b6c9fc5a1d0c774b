"""Replica lag, measured by positions in the write-ahead log.

The primary's position is recorded at most once a second, and only while there are reads. The lag of
the replica is the age of the last recorded position that it has replayed. Times would mislead: on
an idle primary the last replayed transaction grows old although nothing is missing.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from penstock.core.clock import SECOND, Clock, Micros
from penstock.core.errors import StoreError
from penstock.db.store import StoreView, Tx

CHECK_SECONDS = 1.0
RETRY_SECONDS = 5.0
"""Time for which a failed replica is not used."""
POSITIONS_MAX = 600
CHECKS_MAX = 4


class ReplicaStatus(NamedTuple):
    """Result of the last check of a replica."""

    is_used: bool
    lag_us: Micros | None
    """How far it lags; None if unknown."""
    problem: str
    """Why it is not used; empty if it is."""


class ReplicaCheck:
    """Decides whether a replica is recent enough; safe to use from several threads."""

    def __init__(
        self, primary: StoreView, replica: StoreView, *, lag_max_us: Micros, clock: Clock
    ) -> None:
        self._primary = primary
        self._replica = replica
        self._lag_max_us = lag_max_us
        self._clock = clock
        self._lock = threading.Lock()
        self._positions: deque[tuple[float, int]] = deque(maxlen=POSITIONS_MAX)
        self._next_at = float("-inf")
        self._status = ReplicaStatus(False, None, "not checked yet")

    def status(self) -> ReplicaStatus:
        """Return the status; check it again if that is due and no other thread is checking it."""
        if self._clock.monotonic() >= self._next_at and self._lock.acquire(blocking=False):
            try:
                self._status = self._checked()
                self._next_at = self._clock.monotonic() + CHECK_SECONDS
            except StoreError as error:
                self._failed(error)
            finally:
                self._lock.release()
        return self._status

    def wait(self) -> ReplicaStatus:
        """Return the status once the replica is used, or after a few checks."""
        for _ in range(CHECKS_MAX):
            if self.status().is_used:
                break
            self._clock.sleep(CHECK_SECONDS)
        return self._status

    def failed(self, error: StoreError) -> None:
        """Use the primary for a while, because a read on the replica failed."""
        with self._lock:
            self._failed(error)

    def _failed(self, error: StoreError) -> None:
        self._status = ReplicaStatus(False, None, error.message)
        self._next_at = self._clock.monotonic() + RETRY_SECONDS

    def _checked(self) -> ReplicaStatus:
        began = self._clock.monotonic()
        position = self._primary.read(_position)
        self._positions.append((began, position))
        replayed = self._replica.read(_position)
        if replayed >= position:
            return ReplicaStatus(True, 0, "")
        reached = [at for at, noted in self._positions if noted <= replayed]
        if not reached:
            return ReplicaStatus(False, None, "its lag is not known yet")
        lag_us = round((self._clock.monotonic() - reached[-1]) * SECOND)
        if lag_us > self._lag_max_us:
            return ReplicaStatus(False, lag_us, "it is too far behind")
        return ReplicaStatus(True, lag_us, "")


def _position(tx: Tx) -> int:
    """Return the position in the write-ahead log, written or replayed."""
    return int(tx.rows("wal_position")[0][0])
