"""Routes for external workers: claim, start, heartbeat, complete, fail, confirm a cancellation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.core.errors import NotFound, PenstockError
from penstock.runs.external.api_models import (
    ClaimByIdIn,
    ClaimedRun,
    ClaimHolderIn,
    ClaimIn,
    ClaimOut,
    ClaimStatusOut,
    CompleteIn,
    CompletionBatchIn,
    CompletionBatchOut,
    FailIn,
    HeartbeatBatchIn,
    HeartbeatBatchOut,
    HeartbeatIn,
    RunResultOut,
    StartRunIn,
)
from penstock.runs.external.api_shapes import (
    claim_status_body,
    claimed_shape,
    completion_of,
    ending_shape,
    progress_of,
    refusal_shape,
)
from penstock.runs.external.client.heartbeats import HeartbeatCall, StartCall
from penstock.runs.external.client.holder import TransitionRequest
from penstock.runs.external.client.reports import EndCall, check_progress, completed, failed
from penstock.runs.external.client.work import (
    CompletionItem,
    ExternalWorker,
    FailureReport,
    Heartbeat,
    WorkerCall,
)
from penstock.runs.states import RunState
from penstock.server.auth import Caller
from penstock.server.openapi import texts
from penstock.server.params import CurrentCaller, IdempotencyKey, RunId, decode_path_id, router
from penstock.server.polling.long_poll import long_poll
from penstock.server.polling.poll_hub import PollKey
from penstock.server.responses import idempotent_write, json_response

routes = router("work")
T = TypeVar("T")

WorkerId = Annotated[
    str | None,
    Header(alias="X-Worker-Id", description=texts.WORKER_ID, max_length=255),
]


@routes.post("/scheduler/claim-runs", response_model=ClaimOut)
async def claim_runs(
    request: Request, by: CurrentCaller, body: ClaimIn, key: IdempotencyKey = None
) -> Response:
    """Claim ready runs for a worker. With `wait_seconds` the request waits if none is ready.

    Only runs of processors declared external are claimed. A claim expires unless the run is started
    or a heartbeat arrives in time.
    """
    worker = ExternalWorker(body.worker_id, by.key)

    def attempt() -> Response:
        return idempotent_write(
            request,
            by,
            lambda client: client.work.claim(
                worker,
                body.max_claims,
                lease_seconds=body.claim_duration_seconds,
                pool=body.pool,
                processors=body.processors,
                customer=by.customer,
            ),
            lambda claimed: {"claimed_runs": [claimed_shape(one) for one in claimed]},
        )

    # With an Idempotency-Key the first response is final, so the request does not wait.
    if body.wait_seconds == 0 or key is not None:
        return await run_in_threadpool(attempt)
    question = PollKey(f"runs:{body.pool}", frozenset(body.processors), by.customer)
    return await long_poll(request, question, body.wait_seconds, attempt, EMPTY)


EMPTY = json_response({"claimed_runs": []})


@routes.post("/pipeline-runs/{run_id}/claim", response_model=ClaimedRun)
def claim_run(
    request: Request, by: CurrentCaller, run_id: RunId, body: ClaimByIdIn, _: IdempotencyKey = None
) -> Response:
    """Claim a given run. 409 if it is not ready or another worker holds it."""
    number = decode_path_id("run", "run", run_id)
    worker = ExternalWorker(body.worker_id, by.key)
    return idempotent_write(
        request,
        by,
        lambda client: client.work.claim_by_id(
            worker, number, lease_seconds=body.claim_duration_seconds, customer=by.customer
        ),
        claimed_shape,
    )


@routes.post("/pipeline-runs/{run_id}/start", response_model=ClaimStatusOut)
def start_run(
    request: Request,
    by: CurrentCaller,
    run_id: RunId,
    body: StartRunIn | None = None,
    worker_id: WorkerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Start a claimed run. The claim lasts five minutes from now and from each heartbeat."""
    number = decode_path_id("run", "run", run_id)
    request_body = body or StartRunIn()
    where = request_body.execution_context
    return idempotent_write(
        request,
        by,
        lambda client: client.work.start(
            number,
            _worker(by, request_body.worker_id, worker_id),
            token=request_body.fencing_token,
            pod=None if where is None else where.pod_name,
            region=None if where is None else where.region,
            customer=by.customer,
        ),
        claim_status_body,
    )


@routes.post("/pipeline-runs/{run_id}/heartbeat", response_model=ClaimStatusOut)
def heartbeat_run(
    request: Request,
    by: CurrentCaller,
    run_id: RunId,
    body: HeartbeatIn | None = None,
    worker_id: WorkerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Extend a claim by five minutes and report progress. The response says whether to stop."""
    number = decode_path_id("run", "run", run_id)
    request_body = body or HeartbeatIn()
    progress = progress_of(request_body)
    return idempotent_write(
        request,
        by,
        lambda client: client.work.heartbeat(
            number,
            _worker(by, request_body.worker_id, worker_id),
            token=request_body.fencing_token,
            progress=progress,
            customer=by.customer,
        ),
        claim_status_body,
    )


@routes.post("/pipeline-runs/heartbeat", response_model=HeartbeatBatchOut)
def heartbeat_runs(
    request: Request,
    by: CurrentCaller,
    body: HeartbeatBatchIn,
    worker_id: WorkerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Send heartbeats of several runs. Each item has its own outcome."""
    heartbeats = [
        Heartbeat(
            run_id=_number(item.run_id),
            token=item.fencing_token,
            progress=progress_of(item),
        )
        for item in body.heartbeats
    ]
    names = [item.run_id for item in body.heartbeats]
    return idempotent_write(
        request,
        by,
        lambda client: client.work.heartbeat_many(
            _worker(by, body.worker_id, worker_id), heartbeats, customer=by.customer
        ),
        lambda outcomes: _each(names, outcomes, "pulse", claim_status_body),
    )


@routes.post("/pipeline-runs/{run_id}/complete", response_model=RunResultOut)
def complete_run(
    request: Request,
    by: CurrentCaller,
    run_id: RunId,
    body: CompleteIn | None = None,
    worker_id: WorkerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Report that a run completed. A repeat by the same worker returns the stored result."""
    number = decode_path_id("run", "run", run_id)
    request_body = body or CompleteIn()
    return idempotent_write(
        request,
        by,
        lambda client: client.work.complete(
            number,
            _worker(by, request_body.worker_id, worker_id),
            token=request_body.fencing_token,
            completion=completion_of(request_body),
            customer=by.customer,
        ),
        ending_shape,
    )


@routes.post("/pipeline-runs/complete", response_model=CompletionBatchOut)
def complete_runs(
    request: Request,
    by: CurrentCaller,
    body: CompletionBatchIn,
    worker_id: WorkerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Report that several runs completed. Each item has its own outcome."""
    reports = [
        CompletionItem(
            run_id=_number(item.run_id),
            token=item.fencing_token,
            completion=completion_of(item),
        )
        for item in body.completions
    ]
    names = [item.run_id for item in body.completions]
    return idempotent_write(
        request,
        by,
        lambda client: client.work.complete_many(
            _worker(by, body.worker_id, worker_id), reports, customer=by.customer
        ),
        lambda outcomes: _each(names, outcomes, "end", ending_shape),
    )


@routes.post("/pipeline-runs/{run_id}/fail", response_model=RunResultOut)
def fail_run(
    request: Request,
    by: CurrentCaller,
    run_id: RunId,
    body: FailIn,
    worker_id: WorkerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Report the failure of a run. It is retried later or becomes a dead letter."""
    number = decode_path_id("run", "run", run_id)
    failure = _failure(body)
    return idempotent_write(
        request,
        by,
        lambda client: client.work.fail(
            number,
            _worker(by, body.worker_id, worker_id),
            failure,
            token=body.fencing_token,
            customer=by.customer,
        ),
        ending_shape,
    )


@routes.post("/pipeline-runs/{run_id}/cancelled", response_model=RunResultOut)
def confirm_cancel(
    request: Request,
    by: CurrentCaller,
    run_id: RunId,
    body: ClaimHolderIn | None = None,
    worker_id: WorkerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Confirm that a run was stopped after a cancellation request."""
    number = decode_path_id("run", "run", run_id)
    request_body = body or ClaimHolderIn()
    return idempotent_write(
        request,
        by,
        lambda client: client.work.cancelled(
            number,
            _worker(by, request_body.worker_id, worker_id),
            token=request_body.fencing_token,
            customer=by.customer,
        ),
        ending_shape,
    )


def start_request(by: Caller, number: int, body: StartRunIn) -> WorkerCall:
    """Validate a start request."""
    where = body.execution_context
    pod = None if where is None else where.pod_name
    region = None if where is None else where.region
    return StartCall(_call(by, number, body, RunState.RUNNING), pod, region)


def heartbeat_request(by: Caller, number: int, body: HeartbeatIn) -> WorkerCall:
    """Validate a heartbeat."""
    progress = progress_of(body)
    check_progress(progress)
    return HeartbeatCall(_call(by, number, body, RunState.RUNNING), progress)


def completion_request(by: Caller, number: int, body: CompleteIn) -> WorkerCall:
    """Validate a completion."""
    return EndCall(_call(by, number, body, RunState.COMPLETED), completed(completion_of(body)))


def failure_request(by: Caller, number: int, body: FailIn) -> WorkerCall:
    """Validate a failure report."""
    return EndCall(_call(by, number, body, RunState.FAILED), failed(_failure(body)))


def _call(
    by: Caller, number: int, body: ClaimHolderIn | HeartbeatIn | CompleteIn, to_state: RunState
) -> TransitionRequest:
    return TransitionRequest(
        number, body.fencing_token, ExternalWorker(body.worker_id, by.key), to_state
    )


def _failure(body: FailIn) -> FailureReport:
    return FailureReport(
        error_type=body.error_type,
        error_details=body.error_details,
        should_retry=body.should_retry,
        retry_after_seconds=body.retry_after_seconds,
    )


def _each(
    names: Sequence[str],
    outcomes: Sequence[T | PenstockError],
    word: str,
    shape: Callable[[T], dict[str, Any]],
) -> dict[str, Any]:
    """Return the outcomes of a batch; each has its result under `word`, or a problem."""
    return {
        "outcomes": [
            {"run_id": name, word: None, "problem": refusal_shape(_refused(name, one))}
            if isinstance(one, PenstockError)
            else {"run_id": name, word: shape(one), "problem": None}
            for name, one in zip(names, outcomes, strict=True)
        ]
    }


def _number(run_id: str) -> int:
    """Decode a run id of a batch; return 0, which no run has, if it is malformed."""
    try:
        return decode_path_id("run", "run", run_id)
    except NotFound:
        return 0


def _refused(run_id: str, error: PenstockError) -> PenstockError:
    """Return the reason of a refusal; a malformed id counts as not found."""
    return error if _number(run_id) else NotFound("run", run_id)


def _worker(by: Caller, in_body: str | None, header: str | None) -> ExternalWorker:
    return ExternalWorker(in_body or header, by.key)
