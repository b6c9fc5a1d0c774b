"""Use cases of external workers in any language: claim, start, heartbeat, complete, fail.

An external worker holds a run by a lease row. A claim lasts as long as the worker requests. Once
started, a run is held for five minutes from its start or last heartbeat; after that the sweeper
fails it as STALE_EXECUTION and it is retried. Every call is one transaction; repeating a call whose
response was lost is harmless. `holder` defines the permitted calls and the errors of all others.
The response to a heartbeat reports a cancel request; `cancelled` confirms that the worker stopped.

Results are accepted as long as the run is held, even after its maximum duration: the work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

import penstock.runs.external.client.reports as reporting
from penstock.access.store.names import NameResolver
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.naming import EXTERNAL_POOL
from penstock.db.store import Transactions, Tx
from penstock.runs.external.client.claim import LEASE_S, Claims
from penstock.runs.external.client.heartbeats import (
    HeartbeatCall,
    StartCall,
    heartbeat_many,
    start_many,
)
from penstock.runs.external.client.holder import (
    Claimed,
    ClaimStatus,
    CompletionItem,
    CompletionResult,
    ExternalWorker,
    FailureReport,
    Heartbeat,
    ProgressReport,
    RunOutcome,
    TransitionRequest,
)
from penstock.runs.external.store import external_run_get_many
from penstock.runs.states import RunState

__all__ = [
    "ClaimStatus",
    "Claimed",
    "CompletionItem",
    "CompletionResult",
    "ExternalWork",
    "ExternalWorker",
    "FailureReport",
    "Heartbeat",
    "ProgressReport",
    "RunOutcome",
]

T = TypeVar("T")

WorkerCall: TypeAlias = StartCall | HeartbeatCall | reporting.EndCall
"""Request of an external worker: to start, to extend or to end a run."""

BATCH_MAX: Final = 1000


class BatchRefused(Exception):
    """A batch of calls failed because of one of them; none was executed."""


class ExternalWork:
    """Use cases of external workers."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names
        self._claims = Claims(names)

    def claim(
        self,
        worker: ExternalWorker,
        n: int = 1,
        *,
        lease_seconds: float = LEASE_S,
        pool: str = EXTERNAL_POOL,
        processors: Sequence[str] = (),
        customer: str | None = None,
    ) -> list[Claimed]:
        """Claim up to `n` ready runs of a pool, in the order in which built-in workers would.

        `processors` restricts the claim ("pipeline" or "pipeline/phase/name"); only processors
        declared external can be claimed. Return an empty list if no run is ready.
        """
        take = self._claims.prepare(worker, n, lease_seconds, pool, processors)
        return self._store.write(lambda tx: take(tx, customer))

    def claim_by_id(
        self,
        worker: ExternalWorker,
        run_id: int,
        *,
        lease_seconds: float = LEASE_S,
        customer: str | None = None,
    ) -> Claimed:
        """Claim one given run, for example one dispatched by a broker; a repeat returns the same
        claim.
        """
        take = self._claims.prepare_by_id(worker, run_id, lease_seconds)
        return self._store.write(lambda tx: take(tx, customer))

    def start(
        self,
        run_id: int,
        caller: ExternalWorker,
        *,
        token: int | None = None,
        pod: str | None = None,
        region: str | None = None,
        customer: str | None = None,
    ) -> ClaimStatus:
        """Mark a claimed run RUNNING and hold it for five minutes; a repeat changes nothing.

        Raise RunCancelled if the run has a cancel request: confirm it with `cancelled`.
        """
        reporting.check_location(pod, region)
        start = StartCall(TransitionRequest(run_id, token, caller, RunState.RUNNING), pod, region)

        def body(tx: Tx) -> ClaimStatus:
            return _only(start_many(tx, [start], self._names.customer_key(tx, customer)))

        return self._store.write(body)

    def heartbeat(
        self,
        run_id: int,
        caller: ExternalWorker,
        *,
        token: int | None = None,
        progress: ProgressReport | None = None,
        customer: str | None = None,
    ) -> ClaimStatus:
        """Extend a run's lease to five minutes from now, record progress, return whether to stop.

        The lease of a claimed run that has not started is extended too; its progress is ignored.
        Raise RunTimedOut after the run's maximum duration.
        """
        heartbeat = Heartbeat(run_id=run_id, token=token, progress=progress or ProgressReport())
        reporting.check_progress(heartbeat.progress)

        def body(tx: Tx) -> ClaimStatus:
            return _only(self._heartbeat(tx, caller, [heartbeat], customer))

        return self._store.write(body)

    def heartbeat_many(
        self,
        caller: ExternalWorker,
        heartbeats: Sequence[Heartbeat],
        *,
        customer: str | None = None,
    ) -> list[ClaimStatus | PenstockError]:
        """Record heartbeats in one transaction; return the response or the error of each."""
        _check_batch(len(heartbeats), "heartbeats")
        for heartbeat in heartbeats:
            reporting.check_progress(heartbeat.progress)
        return self._store.write(lambda tx: self._heartbeat(tx, caller, heartbeats, customer))

    def complete(
        self,
        run_id: int,
        caller: ExternalWorker,
        *,
        token: int | None = None,
        completion: CompletionResult | None = None,
        customer: str | None = None,
    ) -> RunOutcome:
        """Complete a run, fully or partially; a repeat returns the stored outcome."""
        report = CompletionItem(
            run_id=run_id, token=token, completion=completion or CompletionResult()
        )
        call = TransitionRequest(run_id, token, caller, RunState.COMPLETED)
        item = reporting.completion_call(call, report.completion)
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def complete_many(
        self,
        caller: ExternalWorker,
        reports: Sequence[CompletionItem],
        *,
        customer: str | None = None,
    ) -> list[RunOutcome | PenstockError]:
        """Complete runs in one transaction; return the outcome or the error of each."""
        _check_batch(len(reports), "completions")
        items = [
            reporting.completion_call(
                TransitionRequest(report.run_id, report.token, caller, RunState.COMPLETED),
                report.completion,
            )
            for report in reports
        ]
        return self._store.write(lambda tx: self._end(tx, items, customer))

    def fail(
        self,
        run_id: int,
        caller: ExternalWorker,
        failure: FailureReport,
        *,
        token: int | None = None,
        customer: str | None = None,
    ) -> RunOutcome:
        """Fail a run: it is retried or becomes a dead letter.

        A run with a cancel request is cancelled instead.
        """
        call = TransitionRequest(run_id, token, caller, RunState.FAILED)
        item = reporting.failure_call(call, failure)
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def cancelled(
        self,
        run_id: int,
        caller: ExternalWorker,
        *,
        token: int | None = None,
        customer: str | None = None,
    ) -> RunOutcome:
        """Confirm that a run was stopped; raise Conflict if it has no cancel request."""
        call = TransitionRequest(run_id, token, caller, RunState.CANCELLED)
        item = reporting.EndCall(call, reporting.cancelled)
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def execute_batch(
        self, asks: Sequence[WorkerCall]
    ) -> list[ClaimStatus | RunOutcome | PenstockError]:
        """Execute calls of several workers in one transaction, each run at most once.

        Calls that arrive at the same time share a commit. Not available to a scoped client.
        """
        self._names.require_unscoped("batched calls of several workers")

        def body(tx: Tx) -> list[ClaimStatus | RunOutcome | PenstockError]:
            # Lock all runs first, in id order: locking them kind by kind could deadlock.
            external_run_get_many(tx, [ask.call.run_id for ask in asks])
            starts = [ask for ask in asks if isinstance(ask, StartCall)]
            heartbeats = [ask for ask in asks if isinstance(ask, HeartbeatCall)]
            ends = [ask for ask in asks if isinstance(ask, reporting.EndCall)]
            outcomes: dict[int, ClaimStatus | RunOutcome | PenstockError] = {}
            for kind, results in (
                (starts, start_many(tx, starts) if starts else []),
                (heartbeats, heartbeat_many(tx, heartbeats) if heartbeats else []),
                (ends, self._end(tx, ends, None) if ends else []),
            ):
                ids = [ask.call.run_id for ask in kind]
                outcomes |= dict(zip(ids, results, strict=True))
            return [outcomes[ask.call.run_id] for ask in asks]

        try:
            return self._store.write(body)
        except PenstockError as error:
            # The actions of one run could not be performed: the caller repeats the calls one by
            # one.
            if len(asks) > 1 and any(isinstance(a, reporting.EndCall) and a.actions for a in asks):
                raise BatchRefused(str(error)) from error
            raise

    def _heartbeat(
        self, tx: Tx, caller: ExternalWorker, heartbeats: Sequence[Heartbeat], customer: str | None
    ) -> list[ClaimStatus | PenstockError]:
        calls = [
            TransitionRequest(heartbeat.run_id, heartbeat.token, caller, RunState.RUNNING)
            for heartbeat in heartbeats
        ]
        requests = [
            HeartbeatCall(call, one.progress) for call, one in zip(calls, heartbeats, strict=True)
        ]
        return heartbeat_many(tx, requests, self._names.customer_key(tx, customer))

    def _end(
        self, tx: Tx, items: Sequence[reporting.EndCall], customer: str | None
    ) -> list[RunOutcome | PenstockError]:
        number = self._names.customer_key(tx, customer)
        return reporting.end_many(tx, self._store, self._names, items, number)


def _only(outcomes: Sequence[T | PenstockError]) -> T:
    """Return the only outcome of a batch of one, or raise it if it is an error."""
    (outcome,) = outcomes
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def _check_batch(size: int, field: str) -> None:
    if not 1 <= size <= BATCH_MAX:
        raise InvalidInput(field, f"1 to {BATCH_MAX} items", f"{size} items")
