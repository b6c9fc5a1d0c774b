"""Data that a heartbeat writes and reads about executing runs.

It writes changed progress, checkpoints and log entries. Those that could not be stored are kept
for the next heartbeat. It reads which runs another process has ended.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from penstock.core.clock import SECOND, Clock
from penstock.db.store import Tx
from penstock.runs.rows import Progress
from penstock.runs.store.actions import state_put_held
from penstock.runs.store.leases import progress_put_many
from penstock.runs.store.logs import LogPart, run_log_put_held
from penstock.worker.context import RunContext, Signal


class HeartbeatReport:
    """Progress and log entries of one worker's runs; one thread uses it."""

    def __init__(self, clock: Clock, worker: str) -> None:
        self._clock = clock
        self._worker = worker
        self._dirty: list[tuple[RunContext, Progress]] = []
        self._entries: dict[tuple[int, int], LogPart] = {}
        self._states: dict[int, tuple[int, int, str]] = {}

    def collect(self, contexts: Iterable[RunContext]) -> None:
        """Collect the changes since the last heartbeat."""
        runs = list(contexts)
        self._dirty = [(c, progress) for c in runs if (progress := c.take_progress())]
        for part in (part for c in runs for part in c.take_entries()):
            self._entries[part.token, part.part] = part  # newer last entries replace older ones
        for c in runs:
            if state := c.take_state():
                self._states[c.held.token] = (c.held.run_id, c.held.token, state)

    def write(self, tx: Tx) -> None:
        """Write the collected changes, in the transaction that renews the session."""
        if self._dirty:
            at, now = tx.now(), self._clock.monotonic()
            progress_put_many(tx, [self._row(c, progress, at, now) for c, progress in self._dirty])
        run_log_put_held(tx, list(self._entries.values()))
        state_put_held(tx, list(self._states.values()))

    def settle(self, *, is_stored: bool) -> None:
        """Drop what was stored; keep the rest for the next heartbeat."""
        if is_stored:
            self._entries.clear()
            self._states.clear()
            return
        for context, _ in self._dirty:
            context.is_dirty = True

    def _row(
        self, context: RunContext, progress: Progress, at: int, now: float
    ) -> tuple[int, int, Progress]:
        """Build a progress row; estimates the completion time when the percentage is known."""
        percent = progress.percent
        left = (now - context.started_at_s) * (100 / percent - 1) if percent else None
        estimate = None if left is None else at + int(left * SECOND)
        reported = replace(progress, worker=self._worker, estimated_completion_at=estimate)
        return context.held.run_id, context.held.token, reported


def follow_store(contexts: Sequence[RunContext], stored: Container[int], now: float) -> None:
    """Compare executing runs with the tokens that the store has for the session.

    A run that is no longer stored was ended by another process: it stops here. A run that was asked
    to stop because the lease was uncertain continues if it has not stopped yet.
    """
    for context in contexts:
        if context.held.token in stored:
            context.withdraw_fence()
        else:
            context.is_gone = True
            context.send_signal(Signal.LEASE, now)
