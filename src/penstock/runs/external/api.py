"""Routes of external workers: claim, start, heartbeat, complete, fail, confirm a cancellation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.core.errors import NotFound, PenstockError
from penstock.runs.external.api_models import (
    BeatsIn,
    BeatsOut,
    ClaimByIdIn,
    ClaimedRun,
    ClaimIn,
    ClaimOut,
    CompleteIn,
    EndOut,
    FailIn,
    HeartbeatIn,
    Holder,
    PulseOut,
    ReportsIn,
    ReportsOut,
    StartRunIn,
)
from penstock.runs.external.api_shapes import (
    claimed_shape,
    completion_of,
    ending_shape,
    pulse_shape,
    refusal_shape,
    told_of,
)
from penstock.runs.external.client.heartbeats import Pulsation, Start
from penstock.runs.external.client.holder import Call
from penstock.runs.external.client.reports import Item, check_told, completed, failed
from penstock.runs.external.client.work import Ask, Heartbeat, Mishap, Report, Worker
from penstock.runs.states import RunState
from penstock.server.auth import Caller
from penstock.server.openapi import texts
from penstock.server.params import By, Repeat, RunId, found, router
from penstock.server.polling.long_poll import polled
from penstock.server.polling.poll_hub import Question
from penstock.server.responses import answer, once

routes = router("work")
T = TypeVar("T")

WorkerId = Annotated[
    str | None,
    Header(alias="X-Worker-Id", description=texts.WORKER_ID, max_length=255),
]


@routes.post("/scheduler/claim-runs", response_model=ClaimOut)
async def claim_runs(request: Request, by: By, body: ClaimIn, key: Repeat = None) -> Response:
    """Claim ready runs for a worker. With `wait_seconds` the request waits if none is ready.

    Only runs of processors declared external are claimed. A claim expires unless the run is started
    or a heartbeat arrives in time.
    """
    worker = Worker(body.worker_id, by.key)

    def attempt() -> Response:
        return once(
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
    question = Question(f"runs:{body.pool}", frozenset(body.processors), by.customer)
    return await polled(request, question, body.wait_seconds, attempt, EMPTY)


EMPTY = answer({"claimed_runs": []})


@routes.post("/pipeline-runs/{run_id}/claim", response_model=ClaimedRun)
def claim_run(
    request: Request, by: By, run_id: RunId, body: ClaimByIdIn, _: Repeat = None
) -> Response:
    """Claim a given run. 409 if it is not ready or another worker holds it."""
    number = found("run", "run", run_id)
    worker = Worker(body.worker_id, by.key)
    return once(
        request,
        by,
        lambda client: client.work.claim_by_id(
            worker, number, lease_seconds=body.claim_duration_seconds, customer=by.customer
        ),
        claimed_shape,
    )


@routes.post("/pipeline-runs/{run_id}/start", response_model=PulseOut)
def start_run(
    request: Request,
    by: By,
    run_id: RunId,
    body: StartRunIn | None = None,
    worker_id: WorkerId = None,
    _: Repeat = None,
) -> Response:
    """Start a claimed run. The claim lasts five minutes from now and from each heartbeat."""
    number = found("run", "run", run_id)
    request_body = body or StartRunIn()
    where = request_body.execution_context
    return once(
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
        pulse_shape,
    )


@routes.post("/pipeline-runs/{run_id}/heartbeat", response_model=PulseOut)
def heartbeat_run(
    request: Request,
    by: By,
    run_id: RunId,
    body: HeartbeatIn | None = None,
    worker_id: WorkerId = None,
    _: Repeat = None,
) -> Response:
    """Extend a claim by five minutes and report progress. The response says whether to stop."""
    number = found("run", "run", run_id)
    request_body = body or HeartbeatIn()
    progress = told_of(request_body)
    return once(
        request,
        by,
        lambda client: client.work.heartbeat(
            number,
            _worker(by, request_body.worker_id, worker_id),
            token=request_body.fencing_token,
            progress=progress,
            customer=by.customer,
        ),
        pulse_shape,
    )


@routes.post("/pipeline-runs/heartbeat", response_model=BeatsOut)
def heartbeat_runs(
    request: Request, by: By, body: BeatsIn, worker_id: WorkerId = None, _: Repeat = None
) -> Response:
    """Send heartbeats of several runs. Each item has its own outcome."""
    beats = [
        Heartbeat(
            run_id=_number(item.run_id),
            token=item.fencing_token,
            progress=told_of(item),
        )
        for item in body.heartbeats
    ]
    names = [item.run_id for item in body.heartbeats]
    return once(
        request,
        by,
        lambda client: client.work.heartbeat_many(
            _worker(by, body.worker_id, worker_id), beats, customer=by.customer
        ),
        lambda outcomes: _each(names, outcomes, "pulse", pulse_shape),
    )


@routes.post("/pipeline-runs/{run_id}/complete", response_model=EndOut)
def complete_run(
    request: Request,
    by: By,
    run_id: RunId,
    body: CompleteIn | None = None,
    worker_id: WorkerId = None,
    _: Repeat = None,
) -> Response:
    """Report that a run completed. A repeat by the same worker returns the stored result."""
    number = found("run", "run", run_id)
    request_body = body or CompleteIn()
    return once(
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


@routes.post("/pipeline-runs/complete", response_model=ReportsOut)
def complete_runs(
    request: Request, by: By, body: ReportsIn, worker_id: WorkerId = None, _: Repeat = None
) -> Response:
    """Report that several runs completed. Each item has its own outcome."""
    reports = [
        Report(
            run_id=_number(item.run_id),
            token=item.fencing_token,
            completion=completion_of(item),
        )
        for item in body.completions
    ]
    names = [item.run_id for item in body.completions]
    return once(
        request,
        by,
        lambda client: client.work.complete_many(
            _worker(by, body.worker_id, worker_id), reports, customer=by.customer
        ),
        lambda outcomes: _each(names, outcomes, "end", ending_shape),
    )


@routes.post("/pipeline-runs/{run_id}/fail", response_model=EndOut)
def fail_run(
    request: Request,
    by: By,
    run_id: RunId,
    body: FailIn,
    worker_id: WorkerId = None,
    _: Repeat = None,
) -> Response:
    """Report the failure of a run. It is retried later or becomes a dead letter."""
    number = found("run", "run", run_id)
    failure = _failure(body)
    return once(
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


@routes.post("/pipeline-runs/{run_id}/cancelled", response_model=EndOut)
def confirm_cancel(
    request: Request,
    by: By,
    run_id: RunId,
    body: Holder | None = None,
    worker_id: WorkerId = None,
    _: Repeat = None,
) -> Response:
    """Confirm that a run was stopped after a cancellation request."""
    number = found("run", "run", run_id)
    request_body = body or Holder()
    return once(
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


def ask_to_start(by: Caller, number: int, body: StartRunIn) -> Ask:
    """Validate a start request."""
    where = body.execution_context
    pod = None if where is None else where.pod_name
    region = None if where is None else where.region
    return Start(_call(by, number, body, RunState.RUNNING), pod, region)


def ask_to_beat(by: Caller, number: int, body: HeartbeatIn) -> Ask:
    """Validate a heartbeat."""
    progress = told_of(body)
    check_told(progress)
    return Pulsation(_call(by, number, body, RunState.RUNNING), progress)


def ask_to_complete(by: Caller, number: int, body: CompleteIn) -> Ask:
    """Validate a completion."""
    return Item(_call(by, number, body, RunState.COMPLETED), completed(completion_of(body)))


def ask_to_fail(by: Caller, number: int, body: FailIn) -> Ask:
    """Validate a failure report."""
    return Item(_call(by, number, body, RunState.FAILED), failed(_failure(body)))


def _call(
    by: Caller, number: int, body: Holder | HeartbeatIn | CompleteIn, to_state: RunState
) -> Call:
    return Call(number, body.fencing_token, Worker(body.worker_id, by.key), to_state)


def _failure(body: FailIn) -> Mishap:
    return Mishap(
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
        return found("run", "run", run_id)
    except NotFound:
        return 0


def _refused(run_id: str, error: PenstockError) -> PenstockError:
    """Return the reason of a refusal; a malformed id counts as not found."""
    return error if _number(run_id) else NotFound("run", run_id)


def _worker(by: Caller, in_body: str | None, header: str | None) -> Worker:
    return Worker(in_body or header, by.key)
