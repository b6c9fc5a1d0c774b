"""Work done outside: claim, start, heartbeat, complete, fail, for workers in any language.

A worker outside holds a run by a lease row of its own. A claim lasts as long as it asks for; once
started, a run is held for five minutes from its start or its last heartbeat, and one that is not
heard of for longer is swept: failed as STALE_EXECUTION and retried. Every call is one transaction;
repeating one whose answer was lost is harmless. `holding` says who may do what, and what refusals
mean. A run whose cancel was asked is told so by its heartbeats; `cancelled` confirms the stop.

Results are taken as long as the run is held, also after its time is over: the work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

import penstock.runs.external.client.reports as reporting
from penstock.access.store.names import Names
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.naming import EXTERNAL_POOL
from penstock.db.store import Store, Tx
from penstock.runs.external.client.claim import LEASE_SECONDS, Claims
from penstock.runs.external.client.heartbeats import Pulsation, Start, beat_many, start_many
from penstock.runs.external.client.holder import (
    Call,
    Claimed,
    Completion,
    Ending,
    Heartbeat,
    Mishap,
    Pulse,
    Report,
    Told,
    Worker,
)
from penstock.runs.external.store import outside_get_many
from penstock.runs.states import RunState

__all__ = [
    "Claimed", "Completion", "Ending", "Heartbeat", "Mishap", "Pulse", "Report", "Told", "Work",
    "Worker",
]  # fmt: skip

T = TypeVar("T")

Ask: TypeAlias = Start | Pulsation | reporting.Item
"""What a worker outside asks: to start a run, to hold it, to end it."""

BATCH_MAX: Final = 1000


class Work:
    """Use cases of workers outside."""

    def __init__(self, store: Store, names: Names) -> None:
        self._store = store
        self._names = names
        self._claims = Claims(names)

    def claim(
        self,
        worker: Worker,
        n: int = 1,
        *,
        lease_seconds: float = LEASE_SECONDS,
        pool: str = EXTERNAL_POOL,
        processors: Sequence[str] = (),
        customer: str | None = None,
    ) -> list[Claimed]:
        """Take up to `n` ready runs of a pool, in the order built-in workers would.

        `processors` names which ("pipeline" or "pipeline/phase/name"); only those declared external
        are given out. Nothing ready: an empty list.
        """
        take = self._claims.taker(worker, n, lease_seconds, pool, processors)
        return self._store.write(lambda tx: take(tx, customer))

    def claim_by_id(
        self,
        worker: Worker,
        run_id: int,
        *,
        lease_seconds: float = LEASE_SECONDS,
        customer: str | None = None,
    ) -> Claimed:
        """Take one given run (a broker dispatches); again for the same worker: the same claim."""
        take = self._claims.taker_by_id(worker, run_id, lease_seconds)
        return self._store.write(lambda tx: take(tx, customer))

    def start(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        pod: str | None = None,
        region: str | None = None,
        customer: str | None = None,
    ) -> Pulse:
        """Mark a claimed run RUNNING and hold it for five minutes; a repeat only tells how it is.

        RunCancelled when its cancel was asked meanwhile: confirm with `cancelled`.
        """
        reporting.check_place(pod, region)
        start = Start(Call(run_id, token, caller, RunState.RUNNING), pod, region)

        def body(tx: Tx) -> Pulse:
            return _only(start_many(tx, [start], self._names.customer(tx, customer)))

        return self._store.write(body)

    def heartbeat(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        progress: Told | None = None,
        customer: str | None = None,
    ) -> Pulse:
        """Hold a run for five more minutes, say how far it is, learn whether to stop.

        A claimed run that has not started is held as well, its progress is not looked at. After its
        maximum duration a run is not held any longer: RunTimedOut.
        """
        beat = Heartbeat(run_id=run_id, token=token, progress=progress or Told())
        reporting.check_told(beat.progress)

        def body(tx: Tx) -> Pulse:
            return _only(self._beat(tx, caller, [beat], customer))

        return self._store.write(body)

    def heartbeat_many(
        self, caller: Worker, beats: Sequence[Heartbeat], *, customer: str | None = None
    ) -> list[Pulse | PenstockError]:
        """Heartbeats of many runs in one transaction: for each its answer, or why not."""
        _check_batch(len(beats), "heartbeats")
        for beat in beats:
            reporting.check_told(beat.progress)
        return self._store.write(lambda tx: self._beat(tx, caller, beats, customer))

    def complete(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        completion: Completion | None = None,
        customer: str | None = None,
    ) -> Ending:
        """The run did its work, wholly or partly; again: what is stored."""
        report = Report(run_id=run_id, token=token, completion=completion or Completion())
        finish = reporting.completed(report.completion)
        call = Call(run_id, token, caller, RunState.COMPLETED)
        item = reporting.Item(call, finish)
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def complete_many(
        self, caller: Worker, reports: Sequence[Report], *, customer: str | None = None
    ) -> list[Ending | PenstockError]:
        """Completions of many runs in one transaction: for each its end, or why not."""
        _check_batch(len(reports), "completions")
        items = [
            reporting.Item(
                Call(report.run_id, report.token, caller, RunState.COMPLETED),
                reporting.completed(report.completion),
            )
            for report in reports
        ]
        return self._store.write(lambda tx: self._end(tx, items, customer))

    def fail(
        self,
        run_id: int,
        caller: Worker,
        mishap: Mishap,
        *,
        token: int | None = None,
        customer: str | None = None,
    ) -> Ending:
        """The run failed: it is retried later, or dead; one that was to be cancelled is that."""
        call = Call(run_id, token, caller, RunState.FAILED)
        item = reporting.Item(call, reporting.failed(mishap))
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def cancelled(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        customer: str | None = None,
    ) -> Ending:
        """The worker stopped a run it was asked to cancel; Conflict when nobody asked."""
        call = Call(run_id, token, caller, RunState.CANCELLED)
        item = reporting.Item(call, reporting.cancelled)
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def together(self, asks: Sequence[Ask]) -> list[Pulse | Ending | PenstockError]:
        """Calls of many workers in one transaction, each run at most once.

        What arrives at the same moment shares a commit; for callers that are bound to nobody.
        """
        self._names.refuse_bound("calls of many workers at once")

        def body(tx: Tx) -> list[Pulse | Ending | PenstockError]:
            # All runs first, in the order of their ids: kinds one after another would lock across.
            outside_get_many(tx, [ask.call.run_id for ask in asks])
            starts = [ask for ask in asks if isinstance(ask, Start)]
            beats = [ask for ask in asks if isinstance(ask, Pulsation)]
            ends = [ask for ask in asks if isinstance(ask, reporting.Item)]
            outcomes: dict[int, Pulse | Ending | PenstockError] = {}
            for kind, told in (
                (starts, start_many(tx, starts) if starts else []),
                (beats, beat_many(tx, beats) if beats else []),
                (ends, self._end(tx, ends, None) if ends else []),
            ):
                ids = [ask.call.run_id for ask in kind]
                outcomes |= dict(zip(ids, told, strict=True))
            return [outcomes[ask.call.run_id] for ask in asks]

        return self._store.write(body)

    def _beat(
        self, tx: Tx, caller: Worker, beats: Sequence[Heartbeat], customer: str | None
    ) -> list[Pulse | PenstockError]:
        calls = [Call(beat.run_id, beat.token, caller, RunState.RUNNING) for beat in beats]
        told = [Pulsation(call, b.progress) for call, b in zip(calls, beats, strict=True)]
        return beat_many(tx, told, self._names.customer(tx, customer))

    def _end(
        self, tx: Tx, items: Sequence[reporting.Item], customer: str | None
    ) -> list[Ending | PenstockError]:
        number = self._names.customer(tx, customer)
        return reporting.end_many(tx, self._store, items, number)


def _only(outcomes: Sequence[T | PenstockError]) -> T:
    """The one outcome of a batch of one; raises when it is a refusal."""
    (outcome,) = outcomes
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def _check_batch(size: int, field: str) -> None:
    if not 1 <= size <= BATCH_MAX:
        raise InvalidInput(field, f"1 to {BATCH_MAX} items", f"{size} items")
