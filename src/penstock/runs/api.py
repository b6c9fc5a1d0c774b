"""Routes of runs: submit, list, show, cancel, retry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Depends, Query, Request
from starlette.responses import Response

from penstock.core.ids import encode
from penstock.runs.api_models import (
    CancelIn,
    CancelOut,
    RunDetailOut,
    RunOut,
    RunRef,
    SubmitIn,
)
from penstock.runs.client.runs import RunFilter, RunPosition, Submission, position_of
from penstock.runs.shapes import detail_shape, run_shape
from penstock.server.auth import Caller
from penstock.server.models import PageModel
from penstock.server.openapi import texts
from penstock.server.params import (
    CurrentCaller,
    Cursor,
    CustomerId,
    IdempotencyKey,
    Limit,
    Offset,
    RunId,
    decode_path_id,
    parse_time,
    renaming_field,
    router,
)
from penstock.server.responses import Pagination, idempotent_write, json_response

routes = router("runs")

States = Literal["PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"]
State = Annotated[States | None, Query(description="Return only runs in this state.")]
Start = Annotated[
    str | None,
    Query(
        description="First scheduled time to return, as a date or an ISO 8601 time.", max_length=40
    ),
]
End = Annotated[
    str | None,
    Query(description="Return only runs scheduled before this date or time.", max_length=40),
]
PipelineName = Annotated[str | None, Query(description=texts.PIPELINE_FILTER, max_length=64)]
Before = Annotated[
    str | None,
    Query(
        description="Return only runs listed after this one; alternative to a cursor.",
        max_length=64,
    ),
]


@dataclass
class RunFilterQuery:
    """Query parameters that filter a list of runs."""

    state: State = None
    start_date: Start = None
    end_date: End = None
    pipeline_template: PipelineName = None
    before: Before = None

    def page(
        self,
        request: Request,
        by: Caller,
        customer: str | None,
        part: tuple[int, int],
        cursor: str | None,
    ) -> Response:
        """Return a page of the matching runs; `part` is (limit, offset)."""
        limit, offset = part
        asked = RunFilter(
            state=self.state,
            occurrence_from=parse_time(self.start_date, "start_date") or 0,
            occurrence_to=parse_time(self.end_date, "end_date") or RunFilter().occurrence_to,
            limit=limit,
        )
        pages = Pagination(
            request, by, state=asked.state, pipeline=self.pipeline_template,
            **{"from": asked.occurrence_from, "to": asked.occurrence_to},
        )  # fmt: skip
        position = pages.position(cursor, 3)
        if position is None and self.before is not None:
            last = by.client.runs.get(decode_path_id("run", "run", self.before), customer)
            position = list(position_of(last))
        deeper = asked if position is not None else replace(asked, limit=limit + offset)
        runs = by.client.runs.page_after(
            deeper,
            None if position is None else RunPosition(*position),
            customer,
            pipeline=self.pipeline_template,
        )
        shown = runs if position is not None else runs[offset:]
        return pages.page(shown, limit, position_of, run_shape)


@routes.post("/customers/{customer_id}/pipeline-runs", status_code=201, response_model=RunRef)
def submit_run(
    request: Request,
    by: CurrentCaller,
    customer_id: CustomerId,
    body: SubmitIn,
    _: IdempotencyKey = None,
) -> Response:
    """Create a run for a customer. It is durable when the response arrives."""
    wanted = Submission(
        pipeline=body.pipeline_template,
        customer=customer_id,
        processor=body.processor,
        partition=body.partition,
        parameters=body.parameters,
        priority=body.execution_priority,
        at=parse_time(body.scheduled_time, "scheduled_time"),
        ordering_key=body.ordering_key,
        correlation_id=body.correlation_id,
    )
    with (
        renaming_field("scheduled_time", ("at",)),
        renaming_field("execution_priority", ("priority",)),
    ):
        return idempotent_write(
            request,
            by,
            lambda client: client.runs.submit_many([wanted], actor=by.actor),
            lambda ids: {"run_id": encode("run", ids[0])},
            201,
        )


@routes.get("/customers/{customer_id}/pipeline-runs", response_model=PageModel[RunOut])
def list_customer_runs(
    request: Request,
    by: CurrentCaller,
    customer_id: CustomerId,
    window: Annotated[RunFilterQuery, Depends()],
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> Response:
    """List the runs of a customer. Active runs come first, then ended ones, newest first."""
    return window.page(request, by, customer_id, (limit, offset), cursor)


@routes.get("/pipeline-runs", response_model=PageModel[RunOut])
def list_runs(
    request: Request,
    by: CurrentCaller,
    window: Annotated[RunFilterQuery, Depends()],
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> Response:
    """List the runs of all customers. Active runs come first, then ended ones, newest first."""
    return window.page(request, by, None, (limit, offset), cursor)


@routes.get("/pipeline-runs/{run_id}", response_model=RunDetailOut)
def get_run(by: CurrentCaller, run_id: RunId) -> Response:
    """Return a run with its attempts, journal and progress."""
    detail = by.client.runs.detail(decode_path_id("run", "run", run_id), by.customer)
    return json_response(detail_shape(detail))


@routes.post("/pipeline-runs/{run_id}/cancel", response_model=CancelOut)
def cancel_run(
    request: Request,
    by: CurrentCaller,
    run_id: RunId,
    body: CancelIn | None = None,
    _: IdempotencyKey = None,
) -> Response:
    """Cancel a pending run, or ask the worker to stop. Heartbeat responses carry the request."""
    number = decode_path_id("run", "run", run_id)
    reason = (body or CancelIn()).reason
    return idempotent_write(
        request,
        by,
        lambda client: client.runs.cancel(
            number, reason=reason, customer=by.customer, actor=by.actor
        ),
        lambda outcome: {"run_id": encode("run", number), "outcome": outcome},
    )


@routes.post("/pipeline-runs/{run_id}/retry", status_code=201, response_model=RunRef)
def retry_run(
    request: Request, by: CurrentCaller, run_id: RunId, _: IdempotencyKey = None
) -> Response:
    """Run an ended run again now, as a new chain of attempts."""
    number = decode_path_id("run", "run", run_id)
    return idempotent_write(
        request,
        by,
        lambda client: client.runs.retry(number, customer=by.customer, actor=by.actor),
        lambda new: {"run_id": encode("run", new)},
        201,
    )
