"""The claim loop: decides how many runs to claim, when, and which executor receives each.

The claimer waits for its hint, which is signalled when runs were added (by any process), when
capacity became free (in this process) and when the worker stops. A timer backs it up, because a
hint may be lost. One thread calls `claim_once`; any thread may call `capacity_freed` and `stop`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from penstock.audit.telemetry import ServiceError
from penstock.core.clock import SECOND
from penstock.core.errors import StoreError
from penstock.db.store import Waiter
from penstock.runs.rows import HeldRun
from penstock.worker.buffer import is_suspect
from penstock.worker.claim_size import ClaimSizer
from penstock.worker.executors.async_loop import AsyncExecutor
from penstock.worker.executors.collector import BatchExecutor
from penstock.worker.executors.threads import ThreadExecutor
from penstock.worker.worker_core import WorkerCore

CAPACITY_WAIT_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 0.002
"""Maximum seconds that ends wait for ends of other runs, to be stored in one transaction."""


class Claimer:
    """Claim loop of a worker: claims as many runs as fit and passes them to the executors."""

    def __init__(
        self,
        steps: WorkerCore,
        pace: ClaimSizer,
        threads: ThreadExecutor,
        loop: AsyncExecutor,
        collect: BatchExecutor,
        *,
        waiter: Waiter,
        give_back: Callable[[list[HeldRun]], None],
        on_saturated: Callable[[], None] = lambda: None,
    ) -> None:
        self._steps = steps
        self._pace = pace
        self._threads = threads
        self._loop = loop
        self._collect = collect
        self._waiter = waiter
        self._give_back = give_back
        self._on_saturated = on_saturated
        self._wants_capacity = False
        self._is_stopping = False
        self._was_saturated = False
        self._claiming = threading.Lock()
        self.has_held = threading.Event()
        """Set whenever runs may need watching."""

    def claim_once(self) -> None:
        """Claim runs up to the free capacity, or wait for capacity; wait for a hint if few were
        found.
        """
        with self._claiming:
            wanted = self._capacity()
            runs = self._steps.claim_once(wanted, start=self._pace.is_long) if wanted else []
            if runs:
                self._dispatch(runs)
                self._steps.fair_clock.raise_once()
        if not wanted:
            self._wants_capacity = True
            if not self._capacity() and not self._is_stopping:
                self._waiter.wait(CAPACITY_WAIT_SECONDS)
            self._wants_capacity = False
        elif len(runs) < wanted and not self._is_stopping:
            poll = self._steps.options.poll_us / SECOND
            self._waiter.wait(poll * (0.75 + 0.5 * self._steps.jitter()))

    def linger_seconds(self) -> float:
        """Return how long ends should wait for the other held runs: 0 if there are none, or if they
        will probably take longer than a transaction.
        """
        rest = len(self._steps.held) - len(self._steps.ends)
        seconds = self._pace.rest_seconds(rest)
        return LINGER_SECONDS if 0 < seconds < LINGER_SECONDS and not self._is_stopping else 0.0

    def flush_once(self) -> None:
        """Store ends; if runs are short, the same transaction claims the next runs of their flows.

        Called by the thread that stores ends. While the other thread claims, this one does not.
        """
        can_claim = self._steps.options.advances and not self._pace.is_long
        if not can_claim or not self._claiming.acquire(blocking=False):
            self._steps.flush_once()
            return
        try:
            runs = self._steps.flush_and_claim(0 if self._is_stopping else self._capacity())
            if runs:
                self._dispatch(runs)
                self._steps.fair_clock.raise_once()
        finally:
            self._claiming.release()

    def capacity_freed(self) -> None:
        """Report free capacity; wakes `claim_once` if it waits for capacity."""
        if self._wants_capacity:
            self._waiter.interrupt()

    def stop(self) -> None:
        """Make `claim_once` return instead of waiting."""
        self._is_stopping = True
        self._waiter.interrupt()

    def close(self) -> None:
        """Close the waiter."""
        self._waiter.close()

    def _capacity(self) -> int:
        """Return how many runs to claim now."""
        options = self._steps.options
        if self._is_saturated(options.zombies_max or options.concurrency):
            return 0
        if self._threads.buffer.has_suspects:
            return 0  # suspects run when nothing else waits
        in_hand = len(self._steps.held) - len(self._steps.ends)
        return self._pace.claim_size(
            in_hand - (self._collect.uncounted if self._collect.processors else 0)
        )

    def _is_saturated(self, zombies_max: int) -> bool:
        """Return whether too many ended runs are still executing; report it once."""
        was_saturated = self._was_saturated
        leaked = self._threads.zombies + self._loop.zombies
        self._was_saturated = leaked >= zombies_max
        if self._was_saturated and not was_saturated:
            text = (
                f"{leaked} processors keep running although their runs timed out or were ended: "
                "claiming is suspended until they return or the worker is replaced"
            )
            self._steps.events.emit(ServiceError("worker.claimer", text, 0.0))
            self._on_saturated()
        return self._was_saturated

    def _dispatch(self, runs: Sequence[HeldRun]) -> None:
        now = self._steps.clock.monotonic()
        known, collecting = self._steps.known, self._collect.processors
        if collecting and any(run.processor_key in collecting for run in runs):
            self._collect.put([run for run in runs if run.processor_key in collecting], now)
            runs = [run for run in runs if run.processor_key not in collecting]
        awaited = [run for run in runs if known[run.processor_key].processor.runs == "async"]
        if awaited:
            tokens = {run.token for run in awaited}
            runs = [run for run in runs if run.token not in tokens]
            self._loop.put(self._marked(awaited), now)
        if runs:
            self._threads.buffer.put(runs, now)
        self.has_held.set()

    def _marked(self, runs: Sequence[HeldRun]) -> list[HeldRun]:
        """Mark the suspects among async runs as RUNNING here: their executor must not block."""
        suspects = [run for run in runs if is_suspect(run)]
        if not suspects:
            return list(runs)
        try:
            started = self._steps.start_many(suspects)
        except StoreError:
            # Unknown whether they were marked: release them like runs that waited too long.
            self._give_back(suspects)
            return [run for run in runs if not is_suspect(run)]
        self._steps.forget(run for run in suspects if run.run_id not in started)
        return [
            run._replace(started_at=run.claimed_at) if is_suspect(run) else run
            for run in runs
            if not is_suspect(run) or run.run_id in started
        ]
