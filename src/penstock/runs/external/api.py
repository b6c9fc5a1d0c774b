"""Workers outside: claim, start, heartbeat, complete, fail, confirm a cancel; also in batches."""

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
from penstock.server.params import By, Repeat, RunId, found, router
from penstock.server.polling.long_poll import polled
from penstock.server.polling.poll_hub import Question
from penstock.server.responses import answer, once

routes = router("work")
T = TypeVar("T")

WorkerId = Annotated[
    str | None,
    Header(alias="X-Worker-Id", description="The worker's own name.", max_length=255),
]


@routes.post("/scheduler/claim-runs", response_model=ClaimOut)
async def claim_runs(request: Request, by: By, body: ClaimIn, key: Repeat = None) -> Response:
    """Claim runs that are ready, waiting for some when there are none.

    Only processors declared external are given out. A claim lapses unless the run is started or
    heard of in time.
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

    # With a key the first answer is the answer: there is nothing to wait for.
    if body.wait_seconds == 0 or key is not None:
        return await run_in_threadpool(attempt)
    question = Question(f"runs:{body.pool}", frozenset(body.processors), by.customer)
    return await polled(request, question, body.wait_seconds, attempt, EMPTY)


EMPTY = answer({"claimed_runs": []})


@routes.post("/pipeline-runs/{run_id}/claim", response_model=ClaimedRun)
def claim_run(
    request: Request, by: By, run_id: RunId, body: ClaimByIdIn, _: Repeat = None
) -> Response:
    """Claim one given run; 409 when it is not ready or somebody else has it."""
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
    """A claimed run starts; it is held for five minutes from now, or from each heartbeat."""
    number = found("run", "run", run_id)
    told = body or StartRunIn()
    where = told.execution_context
    return once(
        request,
        by,
        lambda client: client.work.start(
            number,
            _worker(by, told.worker_id, worker_id),
            token=told.fencing_token,
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
    """The run goes on: it is held for five more minutes. The answer tells whether to stop."""
    number = found("run", "run", run_id)
    told = body or HeartbeatIn()
    progress = told_of(told)
    return once(
        request,
        by,
        lambda client: client.work.heartbeat(
            number,
            _worker(by, told.worker_id, worker_id),
            token=told.fencing_token,
            progress=progress,
            customer=by.customer,
        ),
        pulse_shape,
    )


@routes.post("/pipeline-runs/heartbeat", response_model=BeatsOut)
def heartbeat_runs(
    request: Request, by: By, body: BeatsIn, worker_id: WorkerId = None, _: Repeat = None
) -> Response:
    """Heartbeats of many runs at once; each has an outcome of its own."""
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
    """The run did its work. Repeated by the same holder it answers what is stored."""
    number = found("run", "run", run_id)
    told = body or CompleteIn()
    return once(
        request,
        by,
        lambda client: client.work.complete(
            number,
            _worker(by, told.worker_id, worker_id),
            token=told.fencing_token,
            completion=completion_of(told),
            customer=by.customer,
        ),
        ending_shape,
    )


@routes.post("/pipeline-runs/complete", response_model=ReportsOut)
def complete_runs(
    request: Request, by: By, body: ReportsIn, worker_id: WorkerId = None, _: Repeat = None
) -> Response:
    """Completions of many runs at once; each has an outcome of its own."""
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
    """The run failed: it is retried later, or it is dead."""
    number = found("run", "run", run_id)
    mishap = _mishap(body)
    return once(
        request,
        by,
        lambda client: client.work.fail(
            number,
            _worker(by, body.worker_id, worker_id),
            mishap,
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
    """The worker stopped a run it was asked to cancel."""
    number = found("run", "run", run_id)
    told = body or Holder()
    return once(
        request,
        by,
        lambda client: client.work.cancelled(
            number,
            _worker(by, told.worker_id, worker_id),
            token=told.fencing_token,
            customer=by.customer,
        ),
        ending_shape,
    )


def ask_to_start(by: Caller, number: int, told: StartRunIn) -> Ask:
    """A start, checked."""
    where = told.execution_context
    pod = None if where is None else where.pod_name
    region = None if where is None else where.region
    return Start(_call(by, number, told, RunState.RUNNING), pod, region)


def ask_to_beat(by: Caller, number: int, told: HeartbeatIn) -> Ask:
    """A heartbeat, checked."""
    progress = told_of(told)
    check_told(progress)
    return Pulsation(_call(by, number, told, RunState.RUNNING), progress)


def ask_to_complete(by: Caller, number: int, told: CompleteIn) -> Ask:
    """A completion, checked."""
    return Item(_call(by, number, told, RunState.COMPLETED), completed(completion_of(told)))


def ask_to_fail(by: Caller, number: int, told: FailIn) -> Ask:
    """A failure, checked."""
    return Item(_call(by, number, told, RunState.FAILED), failed(_mishap(told)))


def _call(
    by: Caller, number: int, told: Holder | HeartbeatIn | CompleteIn, to_state: RunState
) -> Call:
    return Call(number, told.fencing_token, Worker(told.worker_id, by.key), to_state)


def _mishap(body: FailIn) -> Mishap:
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
    """The outcomes of a batch: under `word` what became of a run, or the problem."""
    return {
        "outcomes": [
            {"run_id": name, word: None, "problem": refusal_shape(_refused(name, one))}
            if isinstance(one, PenstockError)
            else {"run_id": name, word: shape(one), "problem": None}
            for name, one in zip(names, outcomes, strict=True)
        ]
    }


def _number(run_id: str) -> int:
    """The number behind an id of a batch; 0, which no run has, for one that is none."""
    try:
        return found("run", "run", run_id)
    except NotFound:
        return 0


def _refused(run_id: str, error: PenstockError) -> PenstockError:
    """Why an item was refused; an id that is none is simply not found."""
    return error if _number(run_id) else NotFound("run", run_id)


def _worker(by: Caller, said: str | None, header: str | None) -> Worker:
    return Worker(said or header, by.key)
