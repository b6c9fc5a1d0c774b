"""Routes of gates, overrides and interventions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query, Request
from starlette.responses import Response

from penstock.core.errors import DeclarationError, InvalidInput
from penstock.flows.gates.api_models import (
    BacktestIn,
    BacktestOut,
    DecisionOut,
    GateCheckIn,
    GateCheckOut,
    InterventionOut,
    InterventionResolveIn,
    ModeChangesIn,
    OverrideIn,
    OverrideOut,
    OverrideRevokeIn,
    WhatIfIn,
    WhatIfOut,
)
from penstock.flows.gates.client.gates import DecisionComparison, GateCheck
from penstock.flows.gates.client.overrides import OverrideRequest
from penstock.flows.gates.override import parse_override_duration
from penstock.flows.gates.shapes import (
    backtest_shape,
    check_shape,
    decision_comparison_shape,
    decision_shape,
    intervention_shape,
    override_shape,
)
from penstock.pipelines.mode import ModeOptions
from penstock.runs.api_models import DoneOut
from penstock.server.auth import Caller
from penstock.server.models import PageModel
from penstock.server.openapi import texts
from penstock.server.params import (
    CurrentCaller,
    Cursor,
    IdempotencyKey,
    Limit,
    decode_path_id,
    parse_time,
    renaming_field,
    router,
)
from penstock.server.responses import Pagination, idempotent_action, idempotent_write, json_response

routes = router("gates")

OverrideId = Annotated[
    str, Path(description="Id of the override (`ovr_…`).", examples=["ovr_7h2kq0v3"], max_length=64)
]
InterventionId = Annotated[
    str,
    Path(description="Id of the intervention (`int_…`).", examples=["int_7h2kq0v3"], max_length=64),
]
Customer = Annotated[str | None, Query(description=texts.CUSTOMER_FILTER, max_length=200)]
Partition = Annotated[str | None, Query(description=texts.PARTITION_FILTER, max_length=500)]
Status = Annotated[
    Literal["open", "resolved", "all"],
    Query(description="Return only interventions of this status."),
]


@routes.post("/gates/check", response_model=GateCheckOut)
def check_gate(
    request: Request, by: CurrentCaller, body: GateCheckIn, _: IdempotencyKey = None
) -> Response:
    """Evaluate a gate now. The data is probed; nothing is changed."""
    flow_id = None if body.flow_id is None else decode_path_id("flow", "flow", body.flow_id)

    def act() -> GateCheck:
        return by.client.gates.check(
            body.pipeline_template,
            body.phase,
            partition=body.partition,
            mode=body.mode,
            processor=body.processor,
            flow_id=flow_id,
            customer=body.customer_id if body.customer_id is not None else by.customer,
        )

    with renaming_field("pipeline_template", ("pipeline",)):
        return idempotent_action(request, by, act, check_shape)


@routes.get("/gates/decisions", response_model=PageModel[DecisionOut])
def list_decisions(
    request: Request,
    by: CurrentCaller,
    pipeline_template: Annotated[str, Query(description=texts.PIPELINE, max_length=64)],
    *,
    partition: Partition = None,
    phase: Annotated[str | None, Query(description=texts.PHASE_FILTER, max_length=200)] = None,
    customer_id: Customer = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List recorded gate decisions with their evidence, newest first."""
    pages = Pagination(request, by, pipeline=pipeline_template, partition=partition, phase=phase,
                  customer=customer_id)  # fmt: skip
    position = pages.position(cursor, 1)
    with renaming_field("pipeline_template", ("pipeline",)):
        rows = by.client.gates.history(
            pipeline_template,
            partition=partition,
            phase=phase,
            customer=by.customer if customer_id is None else customer_id,
            limit=limit,
            **({} if position is None else {"before": position[0]}),
        )
    return pages.page(rows, limit, lambda row: [row.decision_id], decision_shape)


@routes.post("/gates/what-if", response_model=WhatIfOut)
def what_if(
    request: Request, by: CurrentCaller, body: WhatIfIn, _: IdempotencyKey = None
) -> Response:
    """Evaluate recorded decisions again under changed settings of the mode."""
    flow_id = None if body.flow_id is None else decode_path_id("flow", "flow", body.flow_id)
    changes = _changes(body.changes)

    def act() -> list[DecisionComparison]:
        rows = by.client.gates.history(
            body.pipeline_template,
            partition=body.partition,
            phase=body.phase,
            flow_id=flow_id,
            customer=_customer(by, body.customer_id),
            limit=body.limit,
        )
        try:
            return by.client.gates.what_if(rows, changes)
        except DeclarationError as error:
            raise InvalidInput("changes", "settings that fit together", error.message) from None

    with renaming_field("pipeline_template", ("pipeline",)):
        return idempotent_action(
            request,
            by,
            act,
            lambda tried: {"items": [decision_comparison_shape(one) for one in tried]},
        )


@routes.post("/gates/backtest", response_model=BacktestOut)
def backtest(
    request: Request, by: CurrentCaller, body: BacktestIn, _: IdempotencyKey = None
) -> Response:
    """Evaluate the decisions of the last days under changed settings. Differences are counted."""
    changes = _changes(body.changes)

    def act() -> dict[str, object]:
        try:
            tried = by.client.gates.backtest(
                body.pipeline_template,
                changes,
                days=body.days,
                phase=body.phase,
                customer=_customer(by, body.customer_id),
            )
        except DeclarationError as error:
            raise InvalidInput("changes", "settings that fit together", error.message) from None
        return backtest_shape(tried)

    with renaming_field("pipeline_template", ("pipeline",)):
        return idempotent_action(request, by, act, lambda shaped: shaped)


@routes.get("/overrides", response_model=PageModel[OverrideOut])
def list_overrides(
    request: Request,
    by: CurrentCaller,
    *,
    pipeline_template: Annotated[
        str | None, Query(description=texts.PIPELINE_FILTER, max_length=64)
    ] = None,
    partition: Partition = None,
    live: Annotated[
        bool, Query(description="Return only overrides that are in effect now.")
    ] = False,
    customer_id: Customer = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List overrides, newest first."""
    pages = Pagination(request, by, pipeline=pipeline_template, partition=partition, live=live,
                  customer=customer_id)  # fmt: skip
    position = pages.position(cursor, 1)
    with renaming_field("pipeline_template", ("pipeline",)):
        rows = by.client.overrides.page(
            pipeline=pipeline_template,
            partition=partition,
            live=live,
            customer=by.customer if customer_id is None else customer_id,
            limit=limit,
            **({} if position is None else {"before": position[0]}),
        )
    return pages.page(rows, limit, lambda row: [row.override_id], override_shape)


@routes.post("/overrides", status_code=201, response_model=OverrideOut)
def grant_override(
    request: Request, by: CurrentCaller, body: OverrideIn, _: IdempotencyKey = None
) -> Response:
    """Allow gates of a partition to proceed without a dependency. The caller is the approver."""
    approval = OverrideRequest(
        pipeline=body.pipeline_template,
        partition=body.partition,
        reason=body.reason,
        expires_at=_expiry(by, body),
        customer=body.customer_id,
        phase=body.phase,
        processor=body.processor,
        dependency=body.dependency,
        source="api",
        notes=body.notes,
    )
    with renaming_field("pipeline_template", ("pipeline",)):
        return idempotent_write(
            request,
            by,
            lambda client: client.overrides.grant(approval, actor=by.actor),
            override_shape,
            201,
        )


@routes.post("/overrides/{override_id}/revoke", response_model=DoneOut)
def revoke_override(
    request: Request,
    by: CurrentCaller,
    override_id: OverrideId,
    body: OverrideRevokeIn | None = None,
    _: IdempotencyKey = None,
) -> Response:
    """Revoke an override. Runs that it allowed to start continue."""
    number = decode_path_id("ovr", "override", override_id)
    reason = (body or OverrideRevokeIn()).reason
    return idempotent_write(
        request,
        by,
        lambda client: client.overrides.revoke(
            number, reason=reason, customer=by.customer, actor=by.actor
        ),
        lambda _: {"status": "done"},
    )


@routes.get("/interventions", response_model=PageModel[InterventionOut])
def list_interventions(
    request: Request,
    by: CurrentCaller,
    status: Status = "open",
    customer_id: Customer = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List interventions, newest first."""
    pages = Pagination(request, by, status=status, customer=customer_id)
    position = pages.position(cursor, 1)
    rows = by.client.interventions.page(
        status=None if status == "all" else status,
        customer=by.customer if customer_id is None else customer_id,
        limit=limit,
        **({} if position is None else {"before": position[0]}),
    )
    return pages.page(rows, limit, lambda row: [row.intervention_id], intervention_shape)


@routes.get("/interventions/{intervention_id}", response_model=InterventionOut)
def get_intervention(by: CurrentCaller, intervention_id: InterventionId) -> Response:
    """Return one intervention."""
    number = decode_path_id("int", "intervention", intervention_id)
    return json_response(intervention_shape(by.client.interventions.get(number, by.customer)))


@routes.post("/interventions/{intervention_id}/resolve", response_model=DoneOut)
def resolve_intervention(
    request: Request,
    by: CurrentCaller,
    intervention_id: InterventionId,
    body: InterventionResolveIn,
    _: IdempotencyKey = None,
) -> Response:
    """Resolve an intervention. Its gate is evaluated again immediately."""
    number = decode_path_id("int", "intervention", intervention_id)
    return idempotent_write(
        request,
        by,
        lambda client: client.interventions.resolve(
            number, body.resolution, customer=by.customer, actor=by.actor
        ),
        lambda _: {"status": "done"},
    )


def _customer(by: Caller, customer: str | None) -> str | None:
    return by.customer if customer is None else customer


def _changes(given: ModeChangesIn) -> ModeOptions:
    """Return the settings that the request names; at least one is required."""
    changes: ModeOptions = {}
    for name, value in given.model_dump(exclude_none=True).items():
        changes[name] = value  # type: ignore[literal-required]
    if not changes:
        raise InvalidInput("changes", "at least one setting", "none")
    return changes


def _expiry(by: Caller, body: OverrideIn) -> int:
    """Return the end of an override from `expires` or `expires_at`."""
    if (body.expires is None) is (body.expires_at is None):
        raise InvalidInput("expires", "either expires or expires_at", "both or neither")
    if body.expires is not None:
        return by.client.views.now() + parse_override_duration(body.expires)
    at = parse_time(body.expires_at, "expires_at")
    assert at is not None
    return at
