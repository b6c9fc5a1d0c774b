"""Ends of runs waiting to be stored: added by many threads, written in batches by one.

An end leaves the queue when the store accepts or rejects it (stale token: reported, never retried).
When the store is unavailable, rejects all ends, or its response was lost, the batch is kept
and written again: ends that were stored the first time are stale the second time. If the store
rejects one end (a value no column can hold) but accepts others, that end is replaced by a plain
failure, so that its run ends and the other runs need not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.access.store.names import NameResolver
from penstock.audit.telemetry import Events, RunsReleased, ServiceError
from penstock.core.errors import PenstockError, StoreError, StoreUnavailable
from penstock.db.store import Transactions, Tx
from penstock.limits.store.limits import requeued_wake
from penstock.runs.ended import wants_ends
from penstock.runs.hooks import suspend_for_flow
from penstock.runs.rows import CompletionEvent, FinishedRun, HeldRun, RunEnd
from penstock.runs.states import RunState
from penstock.runs.store.finish import run_end_many, run_release_many
from penstock.runs.store.logs import LogPart
from penstock.runs.store.runs import Claim
from penstock.worker.execution.end_events import emit_results, not_stored
from penstock.worker.execution.follow_up import FollowUp
from penstock.worker.execution.kept_reports import KeptReports
from penstock.worker.execution.run_port import RunReport
from penstock.worker.options import WorkerOptions
from penstock.worker.outcome import RELEASED, SUSPENDED

ADMIT: Final = "admit"
FLOWS: Final = "flows"
PROBE_FINISH: Final = RunEnd(0, 0, "FAILED", "FAILURE")
"""An end that matches no run: tests whether the store accepts ends, without changing anything."""


class FlushCounts(NamedTuple):
    """Counts of one flush; rejected ends came too late and changed nothing."""

    ended: int = 0
    refused: int = 0
    retried: int = 0


class FinishQueue:
    """The ends of one worker's runs; `add` from any thread, `flush_once` from one at a time."""

    def __init__(
        self,
        store: Transactions,
        held: dict[int, HeldRun],
        options: WorkerOptions,
        names: NameResolver,
        *,
        events: Events,
        jitter: Callable[[], float],
    ) -> None:
        """A run is removed from `held` when its end leaves the queue."""
        self._store = store
        self._held = held
        self._options = options
        self._events = events
        self._jitter = jitter
        self._names = names
        self._queue: deque[RunEnd] = deque()
        self._kept = KeptReports(store, names)
        self._in_flight = 0
        self._advances = options.advances
        self._follow_up = FollowUp(store, options, names)
        self._claim: Claim | None = None
        self._claimed: list[HeldRun] = []

    def __len__(self) -> int:
        """Number of ends not stored yet, including those being written."""
        return len(self._queue) + self._in_flight

    def add(self, finishes: Iterable[RunEnd]) -> None:
        """Queue ends."""
        self._queue.extend(finishes)

    def keep(self, parts: Sequence[LogPart], report: RunReport | None) -> None:
        """Keep the log entries and actions of a run until its end is stored."""
        self._kept.keep(parts, report)

    def tokens(self) -> set[int]:
        """Return the tokens of the runs whose ends are queued."""
        return {finish.token for finish in list(self._queue)}

    def flush_and_claim(self, claim: Claim) -> list[HeldRun]:
        """Store ends as `flush_once` does; return the runs claimed in the same transaction.

        Runs are claimed only if the transaction created runs of this worker's pool.
        """
        self._claim, self._claimed = claim, []
        try:
            self.flush_once()
        finally:
            self._claim = None
        return self._claimed

    def flush_once(self) -> FlushCounts:
        """Store the oldest ends in one transaction; on failure they are kept for the next call."""
        batch: list[RunEnd] = []
        while self._queue and len(batch) < self._options.batch_max:
            batch.append(self._queue.popleft())
        if not batch:
            return FlushCounts()
        self._in_flight = len(batch)
        try:
            ends = self._release_returned(self._suspend_waiting(batch))
            return self._flush_or_keep(ends) if ends else FlushCounts()
        finally:
            self._in_flight = 0

    def _suspend_waiting(self, batch: list[RunEnd]) -> list[RunEnd]:
        """Suspend runs that wait for a flow, one at a time; return the remaining ends.

        If the flow can no longer be opened, the run fails.
        """
        rest = [finish for finish in batch if finish.final_state != SUSPENDED]
        waiting = [finish for finish in batch if finish.final_state == SUSPENDED]
        for n, finish in enumerate(waiting):
            report = self._kept[finish.token]
            try:
                self._store.write(partial(self._suspend, finish=finish, report=report))
            except StoreError:
                self._queue.extendleft(reversed([*waiting[n:], *rest]))
                raise
            except PenstockError as error:
                self._kept.forget_report(finish.token)
                rest.append(self._failed(finish, error))
                continue
            self._forget([finish])
        return rest

    def _suspend(self, tx: Tx, finish: RunEnd, report: RunReport) -> None:
        assert report.wait is not None
        held = report.held
        if suspend_for_flow(tx, self._store, self._names, held, report.wait):
            self._kept.write(tx, [finish], {held.run_id}, set())

    def _forget(self, batch: Sequence[RunEnd]) -> None:
        for finish in batch:
            self._held.pop(finish.token, None)
        self._kept.forget([finish.token for finish in batch])

    def _release_returned(self, batch: list[RunEnd]) -> list[RunEnd]:
        """Release snoozed runs and runs cut short by a planned stop; return the remaining ends."""
        back = [finish for finish in batch if finish.final_state == RELEASED]
        if not back:
            return batch
        rows = [(finish.run_id, finish.token, finish.retry_delay_us or 0) for finish in back]
        snoozed = [finish.run_id for finish in back if finish.retry_delay_us]

        def release(tx: Tx) -> set[int]:
            released = run_release_many(tx, rows)
            requeued_wake(tx, snoozed)
            self._kept.write(tx, back, released, set())
            return released

        try:
            released = self._store.write(release)
        except StoreError:
            self._queue.extendleft(reversed(batch))
            raise
        self._forget(back)
        if stopped := released.difference(snoozed):
            self._events.emit(RunsReleased.of(stopped))
        self._store.wake([ADMIT])
        return [finish for finish in batch if finish.final_state != RELEASED]

    def _flush_or_keep(self, batch: list[RunEnd]) -> FlushCounts:
        held = [self._held.get(finish.token) for finish in batch]
        if self._advances and any(run is not None and run.flow_id is not None for run in held):
            counts = self._flush_and_follow(batch)
            if counts is not None:
                return counts
        try:
            finished = self._store.write(lambda tx: self._end(tx, batch))
        except StoreError:
            self._queue.extendleft(reversed(batch))
            raise
        except Exception as error:
            self._check_store(batch, error)
            return self._flush_singly(batch)
        self._advances = self._options.advances
        return self._flushed(batch, finished)

    def _flush_and_follow(self, batch: list[RunEnd]) -> FlushCounts | None:
        """Store ends and advance their flows in one transaction; None if a flow cannot advance.

        After any failure the next transaction only stores the ends: the orchestrator advances the
        flows, each on its own if necessary.
        """
        self._advances = False
        try:
            finished, claimed = self._store.write(lambda tx: self._end_and_follow(tx, batch))
        except StoreError:
            self._queue.extendleft(reversed(batch))
            raise
        except Exception as error:
            self._events.emit(ServiceError("worker.completer", str(error), 0.0))
            return None
        self._advances, self._claimed = True, claimed
        return self._flushed(batch, finished, has_followed=True)

    def _end_and_follow(
        self, tx: Tx, batch: list[RunEnd]
    ) -> tuple[list[FinishedRun], list[HeldRun]]:
        events: list[CompletionEvent] = []
        finished = self._end(tx, batch, events)
        return finished, self._follow_up(tx, events, self._claim) if events else []

    def _check_store(self, batch: Sequence[RunEnd], error: Exception) -> None:
        """Keep the batch, unless the store accepts other ends: then one of these is invalid."""
        try:
            self._store.write(lambda tx: run_end_many(tx, [PROBE_FINISH]))
        except Exception as cause:
            self._queue.extendleft(reversed(batch))
            raise StoreUnavailable(f"the store rejects all run results: {cause}") from error

    def _flush_singly(self, batch: Sequence[RunEnd]) -> FlushCounts:
        """Store ends one by one: one cannot be stored, and the others must not wait for it."""
        total = FlushCounts()
        kept: list[RunEnd] = []
        failure: Exception | None = None
        for n, finish in enumerate(batch):
            try:
                one = self._flush_or_replace(finish)
            except StoreError:
                self._queue.extendleft(reversed([*batch[n:], *kept]))
                raise
            except Exception as error:
                failure = error
                kept.append(finish)
                continue
            total = _plus(total, one)
        if failure is not None:
            self._queue.extend(kept)
            raise StoreUnavailable(
                f"{len(kept)} run results are kept for a retry: {failure}"
            ) from failure
        return total

    def _flush_or_replace(self, finish: RunEnd) -> FlushCounts:
        try:
            return self._flush(finish)
        except StoreError:
            raise
        except Exception as error:
            self._events.emit(ServiceError("worker.completer", str(error), 0.0))
            if finish.token not in self._held:
                return FlushCounts(refused=1)  # the run is no longer held here
            return self._flush(self._failed(finish, error))

    def _flush(self, end: RunEnd) -> FlushCounts:
        return self._flushed([end], self._store.write(lambda tx: self._end(tx, [end])))

    def _end(
        self, tx: Tx, batch: list[RunEnd], events: list[CompletionEvent] | None = None
    ) -> list[FinishedRun]:
        """End runs and store their last log entries; `events` receives flow events."""
        finished = run_end_many(tx, batch, events)
        if self._kept:
            done = {end.run_id for end in finished if end.final_state == RunState.COMPLETED}
            self._kept.write(tx, batch, {end.run_id for end in finished}, done)
        return finished

    def _failed(self, finish: RunEnd, error: Exception) -> RunEnd:
        held = self._held.get(finish.token)
        if held is None:
            return finish
        return not_stored(held, error, jitter=self._jitter(), actor=self._options.name)

    def _flushed(
        self,
        batch: Sequence[RunEnd],
        finished: Sequence[FinishedRun],
        *,
        has_followed: bool = False,
    ) -> FlushCounts:
        runs = [self._held.pop(finish.token, None) for finish in batch]
        if self._kept:
            self._forget(batch)
        retried = sum(1 for end in finished if end.retry_run_id is not None)
        if retried:
            self._store.wake([ADMIT])
        if any(end.flow_id is not None and (end.item_key or not has_followed) for end in finished):
            self._store.wake([FLOWS])
        if wants_ends(self._events) or len(finished) < len(batch):
            emit_results(self._events, batch, runs, finished)
        return FlushCounts(len(finished), len(batch) - len(finished), retried)


def _plus(total: FlushCounts, part: FlushCounts) -> FlushCounts:
    return FlushCounts(*(a + b for a, b in zip(total, part, strict=True)))
