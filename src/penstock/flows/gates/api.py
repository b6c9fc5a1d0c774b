"""Routes of gates, overrides and interventions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query, Request
from starlette.responses import Response

from penstock.core.errors import DeclarationError, InvalidInput
from penstock.flows.gates.api_models import (
    BacktestIn,
    BacktestOut,
    ChangesIn,
    CheckIn,
    CheckOut,
    DecisionOut,
    InterventionOut,
    OverrideIn,
    OverrideOut,
    OverrideRevokeIn,
    ResolveIn,
    WhatIfIn,
    WhatIfOut,
)
from penstock.flows.gates.client.gates import GateCheck, Retried
from penstock.flows.gates.client.people import Approval
from penstock.flows.gates.override import lasting
from penstock.flows.gates.shapes import (
    backtest_shape,
    check_shape,
    decision_shape,
    intervention_shape,
    override_shape,
    retried_shape,
)
from penstock.pipelines.mode import ModeOptions
from penstock.runs.api_models import Done
from penstock.server.auth import Caller
from penstock.server.models import Page
from penstock.server.openapi import texts
from penstock.server.params import By, Cursor, Limit, Repeat, found, moment, router, said
from penstock.server.responses import Pages, answer, once, remembered

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


@routes.post("/gates/check", response_model=CheckOut)
def check_gate(request: Request, by: By, body: CheckIn, _: Repeat = None) -> Response:
    """Evaluate a gate now. The data is probed; nothing is changed."""
    flow_id = None if body.flow_id is None else found("flow", "flow", body.flow_id)

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

    with said("pipeline_template", ("pipeline",)):
        return remembered(request, by, act, check_shape)


@routes.get("/gates/decisions", response_model=Page[DecisionOut])
def list_decisions(
    request: Request,
    by: By,
    pipeline_template: Annotated[str, Query(description=texts.PIPELINE, max_length=64)],
    *,
    partition: Partition = None,
    phase: Annotated[str | None, Query(description=texts.PHASE_FILTER, max_length=200)] = None,
    customer_id: Customer = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List recorded gate decisions with their evidence, newest first."""
    pages = Pages(request, by, pipeline=pipeline_template, partition=partition, phase=phase,
                  customer=customer_id)  # fmt: skip
    place = pages.place(cursor, 1)
    with said("pipeline_template", ("pipeline",)):
        rows = by.client.gates.history(
            pipeline_template,
            partition=partition,
            phase=phase,
            customer=by.customer if customer_id is None else customer_id,
            limit=limit,
            **({} if place is None else {"before": place[0]}),
        )
    return pages.page(rows, limit, lambda row: [row.decision_id], decision_shape)


@routes.post("/gates/what-if", response_model=WhatIfOut)
def what_if(request: Request, by: By, body: WhatIfIn, _: Repeat = None) -> Response:
    """Evaluate recorded decisions again under changed settings of the mode."""
    flow_id = None if body.flow_id is None else found("flow", "flow", body.flow_id)
    changes = _changes(body.changes)

    def act() -> list[Retried]:
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

    with said("pipeline_template", ("pipeline",)):
        return remembered(
            request, by, act, lambda tried: {"items": [retried_shape(one) for one in tried]}
        )


@routes.post("/gates/backtest", response_model=BacktestOut)
def backtest(request: Request, by: By, body: BacktestIn, _: Repeat = None) -> Response:
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

    with said("pipeline_template", ("pipeline",)):
        return remembered(request, by, act, lambda shaped: shaped)


@routes.get("/overrides", response_model=Page[OverrideOut])
def list_overrides(
    request: Request,
    by: By,
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
    pages = Pages(request, by, pipeline=pipeline_template, partition=partition, live=live,
                  customer=customer_id)  # fmt: skip
    place = pages.place(cursor, 1)
    with said("pipeline_template", ("pipeline",)):
        rows = by.client.overrides.page(
            pipeline=pipeline_template,
            partition=partition,
            live=live,
            customer=by.customer if customer_id is None else customer_id,
            limit=limit,
            **({} if place is None else {"before": place[0]}),
        )
    return pages.page(rows, limit, lambda row: [row.override_id], override_shape)


@routes.post("/overrides", status_code=201, response_model=OverrideOut)
def grant_override(request: Request, by: By, body: OverrideIn, _: Repeat = None) -> Response:
    """Allow gates of a partition to proceed without a dependency. The caller is the approver."""
    approval = Approval(
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
    with said("pipeline_template", ("pipeline",)):
        return once(
            request,
            by,
            lambda client: client.overrides.grant(approval, actor=by.actor),
            override_shape,
            201,
        )


@routes.post("/overrides/{override_id}/revoke", response_model=Done)
def revoke_override(
    request: Request,
    by: By,
    override_id: OverrideId,
    body: OverrideRevokeIn | None = None,
    _: Repeat = None,
) -> Response:
    """Revoke an override. Runs that it allowed to start continue."""
    number = found("ovr", "override", override_id)
    reason = (body or OverrideRevokeIn()).reason
    return once(
        request,
        by,
        lambda client: client.overrides.revoke(
            number, reason=reason, customer=by.customer, actor=by.actor
        ),
        lambda _: {"status": "done"},
    )


@routes.get("/interventions", response_model=Page[InterventionOut])
def list_interventions(
    request: Request,
    by: By,
    status: Status = "open",
    customer_id: Customer = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List interventions, newest first."""
    pages = Pages(request, by, status=status, customer=customer_id)
    place = pages.place(cursor, 1)
    rows = by.client.interventions.page(
        status=None if status == "all" else status,
        customer=by.customer if customer_id is None else customer_id,
        limit=limit,
        **({} if place is None else {"before": place[0]}),
    )
    return pages.page(rows, limit, lambda row: [row.intervention_id], intervention_shape)


@routes.get("/interventions/{intervention_id}", response_model=InterventionOut)
def get_intervention(by: By, intervention_id: InterventionId) -> Response:
    """Return one intervention."""
    number = found("int", "intervention", intervention_id)
    return answer(intervention_shape(by.client.interventions.get(number, by.customer)))


@routes.post("/interventions/{intervention_id}/resolve", response_model=Done)
def resolve_intervention(
    request: Request, by: By, intervention_id: InterventionId, body: ResolveIn, _: Repeat = None
) -> Response:
    """Resolve an intervention. Its gate is evaluated again immediately."""
    number = found("int", "intervention", intervention_id)
    return once(
        request,
        by,
        lambda client: client.interventions.resolve(
            number, body.resolution, customer=by.customer, actor=by.actor
        ),
        lambda _: {"status": "done"},
    )


def _customer(by: Caller, customer: str | None) -> str | None:
    return by.customer if customer is None else customer


def _changes(given: ChangesIn) -> ModeOptions:
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
        return by.client.views.now() + lasting(body.expires)
    at = moment(body.expires_at, "expires_at")
    assert at is not None
    return at
