"""Routes of flows: list, show, explain, trigger, cancel; external completions; traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from penstock.core.ids import encode
from penstock.flows.api_models import (
    CompletionReportIn,
    CompletionReportOut,
    ExplainOut,
    FlowCancelOut,
    FlowDetailOut,
    FlowIn,
    FlowOut,
    FlowPreviewOut,
    FlowTriggerOut,
    TraceOut,
    WhyOut,
)
from penstock.flows.client.completion_message import report_of
from penstock.flows.client.requests import FlowRequest
from penstock.flows.explain.client import FlowFilter
from penstock.flows.shapes import (
    cause_tree_shape,
    completion_receipt_shape,
    flow_detail_shape,
    flow_explanation_shape,
    flow_shape,
    opened_shape,
    preview_shape,
    trace_shape,
)
from penstock.runs.api_models import CancelIn
from penstock.server.models import PageModel
from penstock.server.openapi import texts
from penstock.server.params import (
    CurrentCaller,
    Cursor,
    IdempotencyKey,
    Limit,
    RunId,
    decode_path_id,
    renaming_field,
    router,
)
from penstock.server.responses import Pagination, idempotent_action, idempotent_write, json_response

routes = router("flows")

FlowId = Annotated[str, Path(description=texts.FLOW_ID, examples=["flow_7h2kq0v3"], max_length=64)]
State = Annotated[
    Literal["OPEN", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED"] | None,
    Query(description="Return only flows in this state."),
]
PipelineName = Annotated[str | None, Query(description=texts.PIPELINE_FILTER, max_length=64)]
Partition = Annotated[str | None, Query(description=texts.PARTITION_FILTER, max_length=500)]
Mode = Annotated[str | None, Query(description="Return only flows of this mode.", max_length=64)]
Customer = Annotated[str | None, Query(description=texts.CUSTOMER_FILTER, max_length=200)]


@dataclass
class FlowFilterQuery:
    """Query parameters that filter a list of flows."""

    customer_id: Customer = None
    pipeline_template: PipelineName = None
    partition: Partition = None
    mode: Mode = None
    state: State = None


@routes.get("/flows", response_model=PageModel[FlowOut])
def list_flows(
    request: Request,
    by: CurrentCaller,
    which: Annotated[FlowFilterQuery, Depends()],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List flows, newest first."""
    pages = Pagination(request, by, **vars(which))
    position = pages.position(cursor, 1)
    asked = FlowFilter(
        partition=which.partition, mode=which.mode, state=which.state, limit=limit,
        **({} if position is None else {"before": position[0]}),
    )  # fmt: skip
    with renaming_field("pipeline_template", ("pipeline",)):
        flows = by.client.flows.page(
            asked,
            pipeline=which.pipeline_template,
            customer=by.customer if which.customer_id is None else which.customer_id,
        )
    return pages.page(flows, limit, lambda flow: [flow.flow_id], flow_shape)


@routes.post("/flows", status_code=201, response_model=FlowTriggerOut)
def trigger_flow(
    request: Request, by: CurrentCaller, body: FlowIn, _: IdempotencyKey = None
) -> Response:
    """Open a flow and start its first phases. Without `force` an existing flow is returned."""
    with (
        renaming_field("pipeline_template", ("pipeline",)),
        renaming_field("execution_priority", ("priority",)),
    ):
        return idempotent_write(
            request,
            by,
            lambda client: client.flows.trigger(_request(body), actor=by.actor),
            opened_shape,
            201,
        )


@routes.post("/flows/preview", response_model=FlowPreviewOut)
def preview_flow(
    request: Request, by: CurrentCaller, body: FlowIn, _: IdempotencyKey = None
) -> Response:
    """Return what a trigger would do. Nothing is changed."""
    with (
        renaming_field("pipeline_template", ("pipeline",)),
        renaming_field("execution_priority", ("priority",)),
    ):
        return idempotent_action(
            request, by, lambda: by.client.previews.trigger(_request(body)), preview_shape
        )


@routes.get("/flows/{flow_id}", response_model=FlowDetailOut)
def get_flow(by: CurrentCaller, flow_id: FlowId) -> Response:
    """Return a flow with its phases, completions, triggers, decisions and journal."""
    number = decode_path_id("flow", "flow", flow_id)
    return json_response(flow_detail_shape(by.client.flows.detail(number, by.customer)))


@routes.get("/flows/{flow_id}/explain", response_model=ExplainOut)
def explain_flow(by: CurrentCaller, flow_id: FlowId) -> Response:
    """Explain each phase of a flow: decision, time, reason, evidence, and what is awaited."""
    number = decode_path_id("flow", "flow", flow_id)
    return json_response(
        flow_explanation_shape(by.client.diagnostics.explain_flow(number, by.customer))
    )


@routes.get("/flows/{flow_id}/why", response_model=WhyOut)
def why_flow(
    by: CurrentCaller,
    flow_id: FlowId,
    phase: Annotated[
        str | None,
        Query(description="Explain only this phase; the whole flow when omitted.", max_length=200),
    ] = None,
) -> Response:
    """Return the tree of causes why a flow, or one of its phases, has not ended."""
    number = decode_path_id("flow", "flow", flow_id)
    return json_response(
        cause_tree_shape(by.client.diagnostics.why_flow(number, phase, by.customer))
    )


@routes.post("/flows/{flow_id}/cancel", response_model=FlowCancelOut)
def cancel_flow(
    request: Request,
    by: CurrentCaller,
    flow_id: FlowId,
    body: CancelIn | None = None,
    _: IdempotencyKey = None,
) -> Response:
    """Cancel a flow and its runs. Runs in progress are asked to stop."""
    number = decode_path_id("flow", "flow", flow_id)
    reason = (body or CancelIn()).reason
    return idempotent_write(
        request,
        by,
        lambda client: client.flows.cancel(
            number, reason=reason, customer=by.customer, actor=by.actor
        ),
        lambda runs: {"flow_id": encode("flow", number), "runs": runs},
    )


@routes.get("/explain", response_model=ExplainOut)
def explain_partition(
    by: CurrentCaller,
    pipeline_template: Annotated[str, Query(description=texts.PIPELINE, max_length=64)],
    partition: Annotated[str, Query(description=texts.PARTITION, max_length=500)],
    customer_id: Annotated[
        str | None, Query(description=texts.CUSTOMER_OR_DEFAULT, max_length=200)
    ] = None,
    mode: Annotated[
        str | None, Query(description="Mode of the flow; any mode when omitted.", max_length=64)
    ] = None,
    generation: Annotated[
        int | None,
        Query(description="Generation of the flow; the newest when omitted.", ge=1, lt=2**31),
    ] = None,
) -> Response:
    """Explain the newest flow of a partition. If there is none, explain what would start it."""
    with renaming_field("pipeline_template", ("pipeline",)):
        explained = by.client.diagnostics.explain(
            pipeline_template, partition, customer=customer_id, mode=mode, generation=generation
        )
    return json_response(flow_explanation_shape(explained))


@routes.get("/pipeline-runs/{run_id}/why", response_model=WhyOut)
def why_run(by: CurrentCaller, run_id: RunId) -> Response:
    """Return the tree of causes why a run has not started or ended."""
    number = decode_path_id("run", "run", run_id)
    return json_response(cause_tree_shape(by.client.diagnostics.why_run(number, by.customer)))


@routes.get("/traces/{correlation_id}", response_model=TraceOut)
def trace(
    by: CurrentCaller,
    correlation_id: Annotated[
        str,
        Path(description="Correlation id, or the id of a flow or run that has it.", max_length=500),
    ],
) -> Response:
    """Return everything that one cause started, and the phases that never started."""
    return json_response(trace_shape(by.client.diagnostics.trace(correlation_id, by.customer)))


@routes.post("/events", status_code=202, response_model=CompletionReportOut)
def report_completion(
    request: Request, by: CurrentCaller, body: CompletionReportIn, _: IdempotencyKey = None
) -> Response:
    """Report the completion of a processor that Penstock does not run.

    The newest open flow of its partition and mode receives it; without one, a new flow is opened.
    """
    report = report_of(body.model_dump(exclude_none=True))
    with (
        renaming_field("pipeline_template", ("pipeline",)),
        renaming_field("processor_name", ("processor",)),
    ):
        return idempotent_write(
            request,
            by,
            lambda client: client.flows.complete(report, actor=by.actor),
            completion_receipt_shape,
            202,
        )


def _request(body: FlowIn) -> FlowRequest:
    return FlowRequest(
        pipeline=body.pipeline_template,
        customer=body.customer_id,
        partition=body.partition,
        mode=body.mode,
        backfill=body.backfill,
        phases=tuple(body.phases),
        no_downstream=body.no_downstream,
        force=body.force,
        parameters=body.parameters,
        priority=body.execution_priority,
        correlation_id=body.correlation_id,
    )
