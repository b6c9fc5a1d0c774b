"""Ends of runs on their way to the store: collected by many threads, written in batches by one.

An end leaves the queue when the store took it or refused it (stale token: reported, never tried
again). When the store is away, or its answer was lost, the batch is kept and written again: what
was stored the first time is simply stale the second. An end the store can never take (a value no
column holds) is replaced by a plain failure, so that the run ends and its neighbours need not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.core import settle
from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.core.model import Finish, Finished, HeldRun
from penstock.core.retry import ErrorType
from penstock.engine.options import WorkerOptions
from penstock.events import Events, RunEnded, RunRefused, ServiceError
from penstock.store.api import Store
from penstock.store.ending import run_end_many

ADMIT: Final = "admit"


class Flushed(NamedTuple):
    """What one flush stored; refused ends came too late and changed nothing."""

    ended: int = 0
    refused: int = 0
    retried: int = 0


class EndQueue:
    """The ends of one worker's runs. `add` from any thread, `flush_once` from one at a time."""

    def __init__(
        self,
        store: Store,
        held: dict[int, HeldRun],
        options: WorkerOptions,
        *,
        events: Events,
        jitter: Callable[[], float],
    ) -> None:
        """`held` loses each run whose end left the queue."""
        self._store = store
        self._held = held
        self._options = options
        self._events = events
        self._jitter = jitter
        self._queue: deque[Finish] = deque()
        self._in_flight = 0

    def __len__(self) -> int:
        """Ends that are not stored yet, those being written included."""
        return len(self._queue) + self._in_flight

    def add(self, finishes: Iterable[Finish]) -> None:
        """Queue ends."""
        self._queue.extend(finishes)

    def tokens(self) -> set[int]:
        """The tokens of the runs whose ends wait."""
        return {finish.token for finish in list(self._queue)}

    def flush_once(self) -> Flushed:
        """Store the oldest ends in one transaction; on failure they are kept for the next call."""
        batch: list[Finish] = []
        while self._queue and len(batch) < self._options.batch_max:
            batch.append(self._queue.popleft())
        if not batch:
            return Flushed()
        self._in_flight = len(batch)
        try:
            return self._flush_or_keep(batch)
        finally:
            self._in_flight = 0

    def _flush_or_keep(self, batch: list[Finish]) -> Flushed:
        try:
            finished = self._store.write(lambda tx: run_end_many(tx, batch))
        except (StoreUnavailable, StoreBusy):
            self._queue.extendleft(reversed(batch))
            raise
        except Exception as error:
            return self._flush_singly(batch, error)
        return self._flushed(batch, finished)

    def _flush_singly(self, batch: Sequence[Finish], error: Exception) -> Flushed:
        """One of them cannot be stored: the others must not wait for it."""
        total = Flushed()
        for n, finish in enumerate(batch):
            tries = [finish, self._plain(finish, error)]
            while tries:
                try:
                    one = self._flush([tries[0]])
                except (StoreUnavailable, StoreBusy):
                    self._queue.extendleft(reversed([tries[0], *batch[n + 1 :]]))
                    raise
                except Exception as cause:
                    self._events.emit(ServiceError("worker.completer", str(cause), 0.0))
                    tries.pop(0)
                    continue
                total = Flushed(*(a + b for a, b in zip(total, one, strict=True)))
                break
            else:
                self._held.pop(finish.token, None)
        return total

    def _flush(self, batch: list[Finish]) -> Flushed:
        return self._flushed(batch, self._store.write(lambda tx: run_end_many(tx, batch)))

    def _plain(self, finish: Finish, error: Exception) -> Finish:
        held = self._held.get(finish.token)
        if held is None:
            return finish
        message = f"how the run ended could not be stored: {type(error).__name__}"
        details = msgspec.json.encode({"message": message}).decode()
        failure = settle.Failure(error_type=ErrorType.VALIDATION_ERROR, details=details)
        return settle.failed(held, failure, jitter=self._jitter(), actor=self._options.name)

    def _flushed(self, batch: Sequence[Finish], finished: Sequence[Finished]) -> Flushed:
        runs = [self._held.pop(finish.token, None) for finish in batch]
        retried = sum(1 for end in finished if end.retry_run_id is not None)
        if retried:
            self._store.wake([ADMIT])
        if self._events.is_heard:
            self._tell(batch, runs, finished)
        return Flushed(len(finished), len(batch) - len(finished), retried)

    def _tell(
        self,
        batch: Sequence[Finish],
        runs: Sequence[HeldRun | None],
        finished: Sequence[Finished],
    ) -> None:
        stored = {end.run_id: end for end in finished}
        for finish, run in zip(batch, runs, strict=True):
            end = stored.get(finish.run_id)
            if end is None:
                self._events.emit(RunRefused(finish.run_id, finish.token))
                continue
            self._events.emit(
                RunEnded(
                    finish.run_id,
                    "" if run is None else run.customer_id,
                    end.processor,
                    end.final_state,
                    finish.error_type,
                    end.retry_run_id is not None,
                    end.is_dead,
                )
            )
