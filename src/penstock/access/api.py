"""Routes of API keys: create, list, rotate, revoke. A secret is returned only once."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request
from starlette.responses import Response

from penstock.access.shapes import key_shape, new_key_shape
from penstock.core.clock import parse_duration
from penstock.monitoring.api_models import (
    ChangedOut,
    KeyCreatedOut,
    KeyIn,
    KeyOut,
    RevokeIn,
    RotateIn,
)
from penstock.server.models import PageModel
from penstock.server.params import (
    CurrentCaller,
    Cursor,
    IdempotencyKey,
    Limit,
    decode_path_id,
    router,
)
from penstock.server.responses import Pagination, idempotent_write

routes = router("keys")
KeyId = Annotated[
    str, Path(description="Id of the key (`key_…`).", examples=["key_5m7t0c2d"], max_length=64)
]


@routes.get("/keys", response_model=PageModel[KeyOut])
def list_keys(
    request: Request,
    by: CurrentCaller,
    customer_id: Annotated[
        str | None,
        Query(description="Return only keys restricted to this customer.", max_length=200),
    ] = None,
    with_revoked: Annotated[bool, Query(description="Include revoked keys.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List API keys without their secrets, oldest first."""
    pages = Pagination(request, by, with_revoked=with_revoked, customer=customer_id)
    place = pages.position(cursor, 1)
    rows = by.client.keys.page(
        customer=customer_id,
        with_revoked=with_revoked,
        after=place[0] if place else 0,
        limit=limit,
    )
    return pages.page(rows, limit, lambda key: [key.key_id], key_shape)


@routes.post("/keys", status_code=201, response_model=KeyCreatedOut)
def create_key(
    request: Request, by: CurrentCaller, body: KeyIn, _: IdempotencyKey = None
) -> Response:
    """Create an API key. Its secret is returned only in this response."""
    lasts = None if body.expires is None else parse_duration(body.expires, "expires")
    expires_at = None if lasts is None else by.client.views.now() + lasts
    return idempotent_write(
        request,
        by,
        lambda client: client.keys.create(
            body.name,
            body.role,
            customer=body.customer_id,
            expires_at=expires_at,
            rate=body.rate,
            actor=by.actor,
        ),
        new_key_shape,
        201,
        kept=lambda key: {"key": None, "info": key_shape(key)},
    )


@routes.post("/keys/{key_id}/rotate", response_model=KeyCreatedOut)
def rotate_key(
    request: Request,
    by: CurrentCaller,
    key_id: KeyId,
    body: RotateIn | None = None,
    _: IdempotencyKey = None,
) -> Response:
    """Replace the secret of a key. The old one stays valid for the overlap."""
    number = decode_path_id("key", "key", key_id)
    overlap = parse_duration((body or RotateIn()).overlap, "overlap")
    return idempotent_write(
        request,
        by,
        lambda client: client.keys.rotate(number, overlap_us=overlap, actor=by.actor),
        new_key_shape,
        kept=lambda key: {"key": None, "info": key_shape(key)},
    )


@routes.post("/keys/{key_id}/revoke", response_model=ChangedOut)
def revoke_key(
    request: Request,
    by: CurrentCaller,
    key_id: KeyId,
    body: RevokeIn | None = None,
    _: IdempotencyKey = None,
) -> Response:
    """Revoke a key permanently. All servers refuse it within 60 seconds."""
    number = decode_path_id("key", "key", key_id)
    reason = (body or RevokeIn()).reason
    return idempotent_write(
        request,
        by,
        lambda client: client.keys.revoke(number, reason=reason, actor=by.actor),
        lambda changed: {"changed": changed},
    )
