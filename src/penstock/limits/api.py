"""Routes of limits: list, show and configure them; release a slot."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from penstock.limits.api_models import LeaseOut, LimitDetailOut, LimitIn, LimitOut, LimitReleaseIn
from penstock.limits.shapes import lease_shape, limit_detail_shape, limit_shape
from penstock.server.models import Page
from penstock.server.params import (
    CurrentCaller,
    Cursor,
    IdempotencyKey,
    Limit,
    decode_path_id,
    router,
)
from penstock.server.responses import Pagination, idempotent_write, json_response

routes = router("limits")


@routes.get("/limits", response_model=Page[LimitOut])
def list_limits(
    request: Request, by: CurrentCaller, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List limits by name, with their current use."""
    pages = Pagination(request, by)
    position = pages.position(cursor, 1)
    rows = by.client.limits.page(after=position[0] if position else "", limit=limit)
    return pages.page(rows, limit, lambda view: [view.limit.name], limit_shape)


@routes.get("/limits/detail", response_model=LimitDetailOut)
def get_limit(
    by: CurrentCaller,
    name: Annotated[
        str, Query(description="Name of the limit.", examples=["bq:t"], max_length=200)
    ],
) -> Response:
    """Return a limit with its holders, queue, waiting times and history."""
    return json_response(limit_detail_shape(by.client.limits.get(name)))


@routes.post("/limits", response_model=LimitDetailOut)
def declare_limit(
    request: Request, by: CurrentCaller, body: LimitIn, _: IdempotencyKey = None
) -> Response:
    """Create or change a limit. The change takes effect immediately."""
    settings = body.model_dump(exclude={"name"}, exclude_none=True)
    return idempotent_write(
        request,
        by,
        lambda client: client.limits.declare(body.name, settings, actor=by.actor),
        limit_detail_shape,
    )


@routes.post("/limits/release", response_model=LeaseOut)
def release_slot(
    request: Request, by: CurrentCaller, body: LimitReleaseIn, _: IdempotencyKey = None
) -> Response:
    """Take a slot away from its holder. Its fencing token is invalid from then on."""
    number = decode_path_id("lease", "lease", body.lease_id)
    return idempotent_write(
        request,
        by,
        lambda client: client.limits.release(number, body.reason, actor=by.actor),
        lease_shape,
    )
