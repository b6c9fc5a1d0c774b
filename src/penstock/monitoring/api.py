"""Routes of the overview, metrics, alerts, processes and pipelines."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query, Request
from starlette.responses import Response

from penstock.core.clock import DAY, parse_iso
from penstock.core.errors import InvalidInput, NotFound
from penstock.monitoring.api_models import (
    AlertOut,
    MetricsOut,
    OverviewOut,
    PipelineOut,
    SessionOut,
)
from penstock.monitoring.shapes import (
    alert_shape,
    metrics_shape,
    overview_shape,
    pipeline_shape,
    session_shape,
)
from penstock.server.models import PageModel
from penstock.server.openapi import texts
from penstock.server.params import (
    CurrentCaller,
    Cursor,
    CustomerId,
    Limit,
    parse_time,
    router,
)
from penstock.server.responses import Pagination, json_response

routes = router("views")
WINDOW_DAYS = 30
EARLIEST = parse_iso("0001-01-01T00:00:00Z")

State = Annotated[
    Literal["open", "acknowledged", "resolved"] | None,
    Query(description="Return only alerts in this state."),
]


@routes.get("/dashboard/pipeline-status", response_model=OverviewOut)
def pipeline_status(by: CurrentCaller) -> Response:
    """Return counts of active runs, and of runs that ended since midnight UTC."""
    views = by.client.views
    next_at, now = views.next_occurrence()
    return json_response(overview_shape(views.overview(), now, next_at))


@routes.get("/customers/{customer_id}/metrics", response_model=MetricsOut)
def customer_metrics(
    by: CurrentCaller,
    customer_id: CustomerId,
    start_date: Annotated[
        str | None,
        Query(
            description="First scheduled time to count; 30 days before `end_date` when omitted.",
            max_length=40,
        ),
    ] = None,
    end_date: Annotated[
        str | None,
        Query(
            description="Count only runs scheduled before this time; now when omitted.",
            max_length=40,
        ),
    ] = None,
) -> Response:
    """Return figures of a customer's ended runs in a period, in total and by provider."""
    end = parse_time(end_date, "end_date")
    if end is None:
        end = by.client.views.now()
    start = parse_time(start_date, "start_date")
    if start is None:
        start = max(EARLIEST, end - WINDOW_DAYS * DAY)
    if start > end:
        raise InvalidInput("start_date", "a time before end_date", start_date)
    rows = by.client.views.metrics(customer_id, start, end)
    return json_response(metrics_shape(customer_id, start, end, rows))


@routes.get("/alerts", response_model=PageModel[AlertOut])
def list_alerts(
    request: Request,
    by: CurrentCaller,
    state: State = None,
    customer_id: Annotated[
        str | None, Query(description=texts.CUSTOMER_FILTER, max_length=200)
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List alerts, newest first."""
    pages = Pagination(request, by, state=state, customer=customer_id)
    place = pages.position(cursor, 1)
    more = {} if place is None else {"before": place[0]}
    rows = by.client.views.alerts(
        state=state,
        customer=by.customer if customer_id is None else customer_id,
        limit=limit,
        **more,
    )
    return pages.page(rows, limit, lambda row: [row.alert_id], alert_shape)


@routes.get("/sessions", response_model=list[SessionOut])
def list_sessions(by: CurrentCaller) -> Response:
    """List live processes: workers and services."""
    return json_response([session_shape(session) for session in by.client.views.sessions()])


@routes.get("/pipelines", response_model=list[PipelineOut])
def list_pipelines(by: CurrentCaller) -> Response:
    """List registered pipelines by name."""
    return json_response([pipeline_shape(info) for info in by.client.views.pipelines()])


@routes.get("/pipelines/{pipeline}", response_model=PipelineOut)
def get_pipeline(
    by: CurrentCaller, pipeline: Annotated[str, Path(description=texts.PIPELINE, max_length=64)]
) -> Response:
    """Return one registered pipeline."""
    for info in by.client.views.pipelines():
        if info.name == pipeline:
            return json_response(pipeline_shape(info))
    raise NotFound("pipeline", pipeline)
