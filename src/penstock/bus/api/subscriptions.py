"""Routes of subscriptions: create, change, list, pause, seek, purge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from penstock.bus.api.models import (
    PausedIn,
    PurgeOut,
    SeekIn,
    SeekOut,
    SubscriptionDetailOut,
    SubscriptionIn,
    SubscriptionOut,
)
from penstock.bus.api.topics import OwnerId, customer_of
from penstock.bus.client.requests import subscription_of
from penstock.bus.push.push_config import parse_push
from penstock.bus.shapes import seek_shape, subscription_detail_shape, subscription_shape
from penstock.runs.api_models import DoneOut
from penstock.server.models import PageModel
from penstock.server.params import CurrentCaller, Cursor, IdempotencyKey, Limit, parse_time, router
from penstock.server.responses import Pagination, idempotent_action, idempotent_write, json_response

routes = router("subscriptions")
Name = Annotated[
    str,
    Path(description="Name of the subscription.", examples=["rosters-to-table"], max_length=255),
]


@routes.post("/subscriptions", response_model=SubscriptionOut)
def declare_subscription(
    request: Request,
    by: CurrentCaller,
    body: SubscriptionIn,
    customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Create a subscription, or replace its settings."""
    if body.push is not None:
        parse_push(body.push, request.app.state.receiving.rules)
    spec, extras = subscription_of(body.model_dump())
    return idempotent_write(
        request,
        by,
        lambda client: client.subscriptions.declare(
            spec,
            extras,
            customer=customer_of(by, customer_id),
            version=body.version,
            actor=by.actor,
        ),
        subscription_shape,
    )


@dataclass(frozen=True, slots=True)
class SubscriptionFilterQuery:
    """Query parameters that filter a list of subscriptions."""

    topic: Annotated[
        str | None, Query(description="Return only subscriptions to this topic.", max_length=255)
    ] = None
    kind: Annotated[
        Literal["pull", "push", "bound"] | None,
        Query(description="Return only subscriptions of this kind."),
    ] = None
    customer_id: OwnerId = None


@routes.get("/subscriptions", response_model=PageModel[SubscriptionOut])
def list_subscriptions(
    request: Request,
    by: CurrentCaller,
    narrow: Annotated[SubscriptionFilterQuery, Depends()],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List subscriptions by name."""
    pages = Pagination(
        request, by, customer=narrow.customer_id, topic=narrow.topic, kind=narrow.kind
    )
    place = pages.position(cursor, 1)
    rows = by.client.subscriptions.page(
        customer=customer_of(by, narrow.customer_id),
        topic=narrow.topic,
        kind=narrow.kind,
        after=place[0] if place else "",
        limit=limit,
    )
    return pages.page(rows, limit, lambda sub: [sub.name], subscription_shape)


@routes.get("/subscriptions/{name}", response_model=SubscriptionDetailOut)
def get_subscription(by: CurrentCaller, name: Name, customer_id: OwnerId = None) -> Response:
    """Return a subscription with its backlog and counters."""
    found = by.client.subscriptions.get(name, customer=customer_of(by, customer_id))
    return json_response(subscription_detail_shape(found))


@routes.delete("/subscriptions/{name}", response_model=DoneOut)
def delete_subscription(by: CurrentCaller, name: Name, customer_id: OwnerId = None) -> Response:
    """Delete a subscription. Its unsettled deliveries are purged."""
    by.client.subscriptions.delete(name, customer=customer_of(by, customer_id), actor=by.actor)
    return json_response({"status": "done"})


@routes.post("/subscriptions/{name}/pause", response_model=SubscriptionOut)
def pause_subscription(
    request: Request, by: CurrentCaller, name: Name, body: PausedIn, customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Pause or resume delivery. Leased deliveries can still be settled."""
    return idempotent_write(
        request,
        by,
        lambda client: client.subscriptions.pause(
            name, body.is_paused, customer=customer_of(by, customer_id), actor=by.actor
        ),
        subscription_shape,
    )


@routes.post("/subscriptions/{name}/seek", response_model=SeekOut)
def seek_subscription(
    request: Request, by: CurrentCaller, name: Name, body: SeekIn, customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Seek a subscription to a time. Newer messages are delivered again, older ones are purged."""
    to = parse_time(body.time, "time")
    assert to is not None
    return idempotent_action(
        request,
        by,
        lambda: by.client.subscriptions.seek(
            name, to, customer=customer_of(by, customer_id), actor=by.actor
        ),
        seek_shape,
    )


@routes.post("/subscriptions/{name}/purge", response_model=PurgeOut)
def purge_subscription(
    request: Request,
    by: CurrentCaller,
    name: Name,
    customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Remove all unsettled deliveries of a subscription."""
    return idempotent_action(
        request,
        by,
        lambda: by.client.subscriptions.purge(
            name, customer=customer_of(by, customer_id), actor=by.actor
        ),
        lambda count: {"purged": count},
    )
