"""Use cases of external workers with records as requests and results, for the API.

`ExternalWork` implements them. Results are converted to records inside the transaction, so that an
idempotent request stores the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar, cast

from penstock.access.run_credentials import granted
from penstock.access.store.names import NameResolver
from penstock.core.errors import (
    Forbidden,
    InvalidInput,
    NotFound,
    PenstockError,
    StaleToken,
)
from penstock.core.fields import canonical_json_object
from penstock.core.ids import decode
from penstock.core.records.parameters import RunId
from penstock.core.records.record import InHeader, Meta
from penstock.db.store import Transactions, Tx
from penstock.runs.action_records import RunCheckpoint, RunWait
from penstock.runs.external.client.holder import TransitionRequest
from penstock.runs.external.client.log import check_entries, log_add
from penstock.runs.external.client.reports import held_run
from penstock.runs.external.client.work import (
    CompletionItem,
    ExternalWork,
    ExternalWorker,
    Heartbeat,
)
from penstock.runs.external.from_rows import (
    claimed_record,
    completion_of,
    ended_record,
    failure_of,
    held_record,
    problem_record,
    progress_of,
)
from penstock.runs.external.records import (
    ClaimDuration,
    ClaimedRun,
    ClaimedRuns,
    ClaimRequest,
    CompletionBatch,
    CompletionOutcome,
    CompletionOutcomes,
    EndedRun,
    HeartbeatBatch,
    HeartbeatOutcome,
    HeartbeatOutcomes,
    ItemProblem,
    RunClaim,
    RunCompletion,
    RunFailure,
    RunHeartbeat,
    RunHolder,
    RunLogReceipt,
    RunLogReport,
    RunStart,
    RunStateReport,
    RunWaitRequest,
    WorkerName,
)
from penstock.runs.from_rows import checkpoint_record
from penstock.runs.hooks import find_sub_flow, suspend_for_flow
from penstock.runs.states import RunState
from penstock.runs.store.actions import state_get, state_put_held
from penstock.runs.store.runs import run_get

__all__ = ["Workers"]

T = TypeVar("T")
R = TypeVar("R")

WorkerHeader = Annotated[
    Annotated[str, Meta(max_length=255)] | None,
    InHeader("X-Worker-Id"),
    Meta(description="Name that identifies the worker, at most 255 characters."),
]


class Workers:
    """Use cases of external workers in any language: claim, start, heartbeat, complete, fail."""

    def __init__(self, store: Transactions, names: NameResolver, key: str) -> None:
        """`key` is the id of the API key that claims, or of a grant (`access.run_credentials`); a
        run is held by its key and worker.
        """
        self._store = store
        self._names = names
        self._key = key

    def claim(self, request: ClaimRequest) -> ClaimedRuns:
        """Claim ready runs for a worker. With `wait_seconds` the request waits if none is ready.

        Only runs of processors declared external are claimed. A claim expires unless the run is
        started or a heartbeat arrives in time.
        """
        return self._do(
            lambda work: work.claim(
                ExternalWorker(request.worker_id, self._key),
                request.max_claims,
                lease_seconds=request.claim_duration_seconds,
                pool=request.pool,
                processors=request.processors,
            ),
            _claimed_runs,
        )

    def claim_by_id(
        self, run_id: RunId, worker_id: WorkerName, claim_duration_seconds: ClaimDuration = 300
    ) -> ClaimedRun:
        """Claim a given run. 409 if it is not ready or another worker holds it."""
        worker = ExternalWorker(worker_id, self._key)
        return self._do(
            lambda work: work.claim_by_id(
                worker, run_key(run_id), lease_seconds=claim_duration_seconds
            ),
            claimed_record,
        )

    def start(
        self, run_id: RunId, report: RunStart | None = None, worker_id: WorkerHeader = None
    ) -> RunClaim:
        """Start a claimed run. The claim lasts five minutes from now and from each heartbeat."""
        given = report or RunStart()
        where = given.execution_context
        return self._do(
            lambda work: work.start(
                run_key(run_id),
                self._worker(given, worker_id),
                token=self._token(run_id, given),
                pod=None if where is None else where.pod_name,
                region=None if where is None else where.region,
            ),
            held_record,
        )

    def heartbeat(
        self, run_id: RunId, report: RunHeartbeat | None = None, worker_id: WorkerHeader = None
    ) -> RunClaim:
        """Extend a claim by five minutes and report progress. The response says whether to stop."""
        given = report or RunHeartbeat()
        return self._do(
            lambda work: work.heartbeat(
                run_key(run_id),
                self._worker(given, worker_id),
                token=self._token(run_id, given),
                progress=progress_of(given),
            ),
            held_record,
        )

    def heartbeat_many(
        self, batch: HeartbeatBatch, worker_id: WorkerHeader = None
    ) -> HeartbeatOutcomes:
        """Send heartbeats of several runs. Each item has its own outcome."""
        names = [item.run_id for item in batch.heartbeats]
        heartbeats = [
            Heartbeat(
                run_id=_key_or_zero(item.run_id),
                token=item.fencing_token,
                progress=progress_of(item),
            )
            for item in batch.heartbeats
        ]

        def outcomes(found: Sequence[Any]) -> HeartbeatOutcomes:
            return HeartbeatOutcomes(
                outcomes=[
                    HeartbeatOutcome(run_id=name, held=held, problem=problem)
                    for name, held, problem in _each(names, found, held_record)
                ]
            )

        return self._do(
            lambda work: work.heartbeat_many(self._worker(batch, worker_id), heartbeats), outcomes
        )

    def complete(
        self, run_id: RunId, report: RunCompletion | None = None, worker_id: WorkerHeader = None
    ) -> EndedRun:
        """Report that a run completed. A repeat by the same worker returns the stored result."""
        given = report or RunCompletion()
        return self._do(
            lambda work: work.complete(
                run_key(run_id),
                self._worker(given, worker_id),
                token=self._token(run_id, given),
                completion=completion_of(given),
            ),
            ended_record,
        )

    def complete_many(
        self, batch: CompletionBatch, worker_id: WorkerHeader = None
    ) -> CompletionOutcomes:
        """Report that several runs completed. Each item has its own outcome."""
        names = [item.run_id for item in batch.completions]
        reports = [
            CompletionItem(
                run_id=_key_or_zero(item.run_id),
                token=item.fencing_token,
                completion=completion_of(item),
            )
            for item in batch.completions
        ]

        def outcomes(found: Sequence[Any]) -> CompletionOutcomes:
            return CompletionOutcomes(
                outcomes=[
                    CompletionOutcome(run_id=name, end=end, problem=problem)
                    for name, end, problem in _each(names, found, ended_record)
                ]
            )

        return self._do(
            lambda work: work.complete_many(self._worker(batch, worker_id), reports), outcomes
        )

    def fail(self, run_id: RunId, report: RunFailure, worker_id: WorkerHeader = None) -> EndedRun:
        """Report the failure of a run. It is retried later or becomes a dead letter."""
        return self._do(
            lambda work: work.fail(
                run_key(run_id),
                self._worker(report, worker_id),
                failure_of(report),
                token=self._token(run_id, report),
            ),
            ended_record,
        )

    def cancelled(
        self, run_id: RunId, holder: RunHolder | None = None, worker_id: WorkerHeader = None
    ) -> EndedRun:
        """Confirm that a run was stopped after a cancellation request."""
        given = holder or RunHolder()
        return self._do(
            lambda work: work.cancelled(
                run_key(run_id), self._worker(given, worker_id), token=self._token(run_id, given)
            ),
            ended_record,
        )

    def wait(
        self, run_id: RunId, report: RunWaitRequest, worker_id: WorkerHeader = None
    ) -> RunWait:
        """Open a flow and suspend the run until the flow ends.

        The run is claimed again when the flow has ended; the same request then returns the outcome.
        No attempt is counted. A flow that waits for this run is rejected with 409.
        """
        number, worker = run_key(run_id), self._worker(report, worker_id)
        wanted = report.trigger
        key = wanted.key or f"{wanted.pipeline}/{wanted.partition or ''}/{wanted.mode or ''}"

        def body(tx: Tx) -> RunWait:
            call = TransitionRequest(number, report.fencing_token, worker, RunState.RUNNING)
            held = held_run(tx, call, self._names.customer_key(tx, None))
            found = find_sub_flow(tx, self._names, held, key, wanted)
            if found is None:
                suspend_for_flow(tx, self._store, self._names, held, (key, wanted))
            return RunWait(run_id=run_id, is_suspended=found is None, flow=found)

        return self._store.write(body)

    def load_state(self, run_id: RunId) -> RunCheckpoint:
        """Return the state that a run continues from, as last saved by an earlier attempt."""
        self._token(run_id, RunHolder())

        def body(tx: Tx) -> RunCheckpoint:
            row = run_get(tx, run_key(run_id), self._names.customer_key(tx, None))
            if row is None:
                raise NotFound("run", run_id)
            found = state_get(tx, row.root_run_id or row.run_id, row.parent_run_id)
            return checkpoint_record(row.run_id, found)

        return self._store.read(body)

    def save_state(
        self, run_id: RunId, report: RunStateReport, worker_id: WorkerHeader = None
    ) -> RunCheckpoint:
        """Save the state of a held run for its next attempt. A stale token is rejected with 409."""
        text = canonical_json_object(report.state, "state")
        number, worker = run_key(run_id), self._worker(report, worker_id)
        token = self._token(run_id, report)

        def body(tx: Tx) -> RunCheckpoint:
            call = TransitionRequest(number, token, worker, RunState.RUNNING)
            held = held_run(tx, call, self._names.customer_key(tx, None))
            state_put_held(tx, [(number, held.token, text)])
            return checkpoint_record(number, state_get(tx, held.root_run_id or number, None))

        return self._store.write(body)

    def log(
        self, run_id: RunId, report: RunLogReport, worker_id: WorkerHeader = None
    ) -> RunLogReceipt:
        """Add entries to the log of a held run. A stale token is rejected with 409.

        A log keeps 10,000 entries, 1 MB and 900 requests: the first half, the newest, and a note.
        """
        check_entries(report)
        token, worker = self._token(run_id, report), self._worker(report, worker_id)
        call = TransitionRequest(run_key(run_id), token, worker, RunState.RUNNING)

        def body(tx: Tx) -> RunLogReceipt:
            held = held_run(tx, call, self._names.customer_key(tx, None))
            return log_add(tx, held, report)

        return self._store.write(body)

    def _do(self, act: Callable[[ExternalWork], T], record: Callable[[T], R]) -> R:
        """Execute a use case in one write; `record` converts its result in the transaction."""
        return cast("R", act(ExternalWork(_RecordStore(self._store, record), self._names)))

    def _token(self, run_id: str, given: RunHolder) -> int | None:
        """Return the fencing token of a call; a grant has its own and permits only its run."""
        grant = granted(self._key)
        if grant is None:
            return given.fencing_token
        if grant[0] != run_id:
            raise Forbidden(f"This credential permits calls about {grant[0]}, not {run_id}.")
        if given.fencing_token not in (None, grant[1]):
            raise StaleToken(run_id)
        return grant[1]

    def _worker(
        self, given: RunHolder | HeartbeatBatch | CompletionBatch, header: str | None
    ) -> ExternalWorker:
        return ExternalWorker(given.worker_id or header, self._key)


class _RecordStore:
    """Transactions whose writes return records."""

    def __init__(self, store: Transactions, record: Callable[[Any], Any]) -> None:
        self._store = store
        self._record = record

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction."""
        return self._store.read(body)

    def write(self, body: Callable[[Tx], Any]) -> Any:
        """Run `body` in one durable transaction and return the record of its result."""
        return self._store.write(lambda tx: self._record(body(tx)))

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters on the channels."""
        self._store.wake(channels)


def _claimed_runs(claimed: Sequence[Any]) -> ClaimedRuns:
    return ClaimedRuns(claimed_runs=[claimed_record(one) for one in claimed])


def _each(
    names: Sequence[str], outcomes: Sequence[T | PenstockError], record: Callable[[T], R]
) -> list[tuple[str, R | None, ItemProblem | None]]:
    """Return (run id, result, problem) of each item of a batch; one of the two is None."""
    return [
        (name, None, problem_record(one if _key_or_zero(name) else NotFound("run", name)))
        if isinstance(one, PenstockError)
        else (name, record(one), None)
        for name, one in zip(names, outcomes, strict=True)
    ]


def run_key(run_id: str) -> int:
    """Decode the id of a run; raise NotFound if it is malformed."""
    try:
        return decode("run", run_id)
    except InvalidInput:
        raise NotFound("run", run_id) from None


def _key_or_zero(run_id: str) -> int:
    """Decode a run id of a batch; return 0, which no run has, if it is malformed."""
    try:
        return decode("run", run_id)
    except InvalidInput:
        return 0
