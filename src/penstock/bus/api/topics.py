"""Routes of topics and messages: create, list, publish, find a message."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request
from starlette.responses import Response

from penstock.bus.api.models import (
    MessageDetailOut,
    PublishIn,
    PublishOut,
    TopicDetailOut,
    TopicIn,
    TopicOut,
)
from penstock.bus.client.requests import outgoing_of
from penstock.bus.shapes import message_detail_shape, topic_detail_shape, topic_shape
from penstock.core.clock import SECOND
from penstock.core.errors import NotFound
from penstock.runs.api_models import DoneOut
from penstock.server.auth import Caller
from penstock.server.models import PageModel
from penstock.server.params import CurrentCaller, Cursor, IdempotencyKey, Limit, router
from penstock.server.responses import Pagination, idempotent_write, json_response

routes = router("topics")
TopicName = Annotated[
    str, Path(description="Name of the topic.", examples=["rosters"], max_length=255)
]
MessageId = Annotated[
    str,
    Path(
        description="Id of the message, as returned by publish.", examples=["4711"], max_length=20
    ),
]
OwnerId = Annotated[
    str | None,
    Query(
        description="Customer that owns the resource; omit it for system topics and subscriptions.",
        max_length=200,
    ),
]


def customer_of(by: Caller, customer_id: str | None) -> str | None:
    """Return the named customer, else the key's customer; None means the system."""
    return by.customer if customer_id is None else customer_id


@routes.post("/topics", status_code=201, response_model=TopicOut)
def create_topic(
    request: Request,
    by: CurrentCaller,
    body: TopicIn,
    customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Create a topic, or update its retention if it exists."""
    return idempotent_write(
        request,
        by,
        lambda client: client.topics.create(
            body.name,
            customer=customer_of(by, customer_id),
            retention_us=body.retention_seconds * SECOND,
            actor=by.actor,
        ),
        topic_shape,
        201,
    )


@routes.get("/topics", response_model=PageModel[TopicOut])
def list_topics(
    request: Request,
    by: CurrentCaller,
    customer_id: OwnerId = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List topics by name."""
    pages = Pagination(request, by, customer=customer_id)
    place = pages.position(cursor, 1)
    rows = by.client.topics.page(
        customer=customer_of(by, customer_id), after=place[0] if place else "", limit=limit
    )
    return pages.page(rows, limit, lambda topic: [topic.name], topic_shape)


@routes.get("/topics/{topic}", response_model=TopicDetailOut)
def get_topic(by: CurrentCaller, topic: TopicName, customer_id: OwnerId = None) -> Response:
    """Return a topic with the names of its subscriptions."""
    found = by.client.topics.get(topic, customer=customer_of(by, customer_id))
    return json_response(topic_detail_shape(found))


@routes.delete("/topics/{topic}", response_model=DoneOut)
def delete_topic(by: CurrentCaller, topic: TopicName, customer_id: OwnerId = None) -> Response:
    """Delete a topic but keep its subscriptions and their backlogs. They get no new messages."""
    by.client.topics.delete(topic, customer=customer_of(by, customer_id), actor=by.actor)
    return json_response({"status": "done"})


@routes.post("/topics/{topic}/publish", response_model=PublishOut)
def publish(
    request: Request,
    by: CurrentCaller,
    topic: TopicName,
    body: PublishIn,
    customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Publish messages atomically. They are durable when the response arrives."""
    messages = outgoing_of([one.model_dump() for one in body.messages])
    return idempotent_write(
        request,
        by,
        lambda client: client.topics.publish(
            topic, messages, customer=customer_of(by, customer_id)
        ),
        lambda ids: {"message_ids": [str(number) for number in ids]},
    )


@routes.get("/messages/{message_id}", response_model=MessageDetailOut)
def get_message(by: CurrentCaller, message_id: MessageId) -> Response:
    """Return a message with its state in each subscription."""
    if not message_id.isascii() or not message_id.isdigit() or len(message_id) > 18:
        raise NotFound("message", message_id)
    found = by.client.topics.message(int(message_id), customer=by.customer)
    return json_response(message_detail_shape(found))
