"""Claimed runs waiting for a thread: stored in batches as claimed, taken in chunks.

Suspects (runs that lapsed or went stale before, so they may have killed a worker) are stored
separately and taken one at a time, when nothing else waits: the other runs should finish before a
suspect starts. Each run is put once and removed once: taken, expired or cleared. All methods are
thread-safe; `take` blocks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from penstock.runs.rows import HeldRun


def is_suspect(held: HeldRun) -> bool:
    """Return whether a run must be stored as RUNNING before its processor starts."""
    return (held.lapses > 0 or held.stales > 0) and held.started_at is None


class RunBuffer:
    """Queue of batches; calls `on_need`, under the lock, if runs are put and no thread waits for
    them.
    """

    def __init__(self, on_need: Callable[[], None]) -> None:
        self._changed = threading.Condition()
        self._batches: deque[tuple[float, deque[HeldRun]]] = deque()
        self._suspects: deque[tuple[float, HeldRun]] = deque()
        self._on_need = on_need
        self._waiting = 0
        self._is_open = True
        self.count = 0
        """Number of waiting runs; only approximate when read without the lock."""

    @property
    def has_suspects(self) -> bool:
        """Whether suspects wait to be taken."""
        return bool(self._suspects)

    def put(self, runs: Sequence[HeldRun], now: float, *, first: bool = False) -> None:
        """Add runs claimed at `now` (monotonic); `first` puts them before the others."""
        clean = deque(run for run in runs if not is_suspect(run))
        with self._changed:
            self._suspects.extend((now, run) for run in runs if is_suspect(run))
            if clean and first:
                self._batches.appendleft((now, clean))
            elif clean:
                self._batches.append((now, clean))
            self.count += len(runs)
            self._notify_taker()

    def take(self, chunk: Callable[[], int]) -> deque[HeldRun] | None:
        """Wait for runs and take up to `chunk()` of them; None once the buffer is closed."""
        with self._changed:
            while not self.count or not self._is_open:
                if not self._is_open:
                    return None
                self._waiting += 1
                self._changed.wait()
                self._waiting -= 1
            taken = self._pop(chunk())
            self.count -= len(taken)
            if self.count:
                self._notify_taker()
            return taken

    def expire(self, before: float) -> list[HeldRun]:
        """Remove and return runs that were put before the given monotonic time."""
        with self._changed:
            out: list[HeldRun] = []
            while self._batches and self._batches[0][0] < before:
                out.extend(self._batches.popleft()[1])
            while self._suspects and self._suspects[0][0] < before:
                out.append(self._suspects.popleft()[1])
            self.count -= len(out)
            return out

    def clear(self) -> list[HeldRun]:
        """Remove and return all runs."""
        return self.expire(float("inf"))

    def close(self) -> None:
        """Make every taker return None; waiting runs stay until `clear`."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _pop(self, n: int) -> deque[HeldRun]:
        if not self._batches:
            return deque([self._suspects.popleft()[1]])
        _, batch = self._batches[0]
        if len(batch) <= n:
            self._batches.popleft()
            return batch
        return deque(batch.popleft() for _ in range(n))

    def _notify_taker(self) -> None:
        if self._waiting:
            self._changed.notify()
        else:
            self._on_need()
