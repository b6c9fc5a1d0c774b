"""Subscriptions: make and change them; pull, ack, nack, extend, release; pause, seek, purge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.client.bus_requests import nacks_of, subscription_of
from penstock.client.bus_shapes import (
    delivery_shape,
    seek_shape,
    subscription_detail_shape,
    subscription_shape,
)
from penstock.core.message import Delivery
from penstock.core.pushing import parse_push
from penstock.http.answers import Pages, answer, once, remembered
from penstock.http.models.bus import (
    AckIn,
    ExtendIn,
    NackIn,
    PausedIn,
    PullIn,
    PullOut,
    PurgeOut,
    SeekIn,
    SeekOut,
    SettledOut,
    SubscriptionDetailOut,
    SubscriptionIn,
    SubscriptionOut,
)
from penstock.http.models.common import Page
from penstock.http.models.runs import Done
from penstock.http.parts import By, Cursor, Limit, Repeat, moment, router
from penstock.http.polling import polled
from penstock.http.routes.topics import Whose, whose
from penstock.http.waiting import Question

routes = router("subscriptions")
Name = Annotated[
    str, Path(description="The subscription.", examples=["rosters-to-table"], max_length=255)
]
EMPTY = answer({"received_messages": []})


@routes.post("/subscriptions", response_model=SubscriptionOut)
def declare_subscription(
    request: Request, by: By, body: SubscriptionIn, customer_id: Whose = None, _: Repeat = None
) -> Response:
    """Make a subscription, or change it to what is said here."""
    if body.push is not None:
        parse_push(body.push, request.app.state.receiving.rules)
    spec, extras = subscription_of(body.model_dump())
    return once(
        request,
        by,
        lambda client: client.subscriptions.declare(
            spec, extras, customer=whose(by, customer_id), version=body.version, actor=by.actor
        ),
        subscription_shape,
    )


@dataclass(frozen=True, slots=True)
class Narrow:
    """Which subscriptions a list shows."""

    topic: Annotated[str | None, Query(description="Only of this topic.", max_length=255)] = None
    kind: Annotated[
        Literal["pull", "push", "bound"] | None, Query(description="Only served like this.")
    ] = None
    customer_id: Whose = None


@routes.get("/subscriptions", response_model=Page[SubscriptionOut])
def list_subscriptions(
    request: Request,
    by: By,
    narrow: Annotated[Narrow, Depends()],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Subscriptions by name."""
    pages = Pages(request, by, customer=narrow.customer_id, topic=narrow.topic, kind=narrow.kind)
    place = pages.place(cursor, 1)
    rows = by.client.subscriptions.page(
        customer=whose(by, narrow.customer_id),
        topic=narrow.topic,
        kind=narrow.kind,
        after=place[0] if place else "",
        limit=limit,
    )
    return pages.page(rows, limit, lambda sub: [sub.name], subscription_shape)


@routes.get("/subscriptions/{name}", response_model=SubscriptionDetailOut)
def get_subscription(by: By, name: Name, customer_id: Whose = None) -> Response:
    """A subscription, what waits in it and what became of the rest."""
    found = by.client.subscriptions.get(name, customer=whose(by, customer_id))
    return answer(subscription_detail_shape(found))


@routes.delete("/subscriptions/{name}", response_model=Done)
def delete_subscription(by: By, name: Name, customer_id: Whose = None) -> Response:
    """Delete a subscription; what waits in it is purged."""
    by.client.subscriptions.delete(name, customer=whose(by, customer_id), actor=by.actor)
    return answer({"status": "done"})


@routes.post("/subscriptions/{name}/pull", response_model=PullOut)
async def pull_messages(
    request: Request, by: By, name: Name, body: PullIn, customer_id: Whose = None,
    key: Repeat = None,
) -> Response:  # fmt: skip
    """Take messages under lease, waiting for some when there are none."""
    customer = whose(by, customer_id)

    def taken() -> list[Delivery]:
        return by.client.subscriptions.pull(name, max_messages=body.max_messages, customer=customer)

    def told(found: list[Delivery]) -> Any:
        return {"received_messages": [delivery_shape(one) for one in found]}

    # With a key the first answer is the answer: there is nothing to wait for.
    if key is not None:
        return await run_in_threadpool(lambda: remembered(request, by, taken, told))

    def attempt() -> Response:
        return answer(told(taken()))

    if body.wait_seconds == 0:
        return await run_in_threadpool(attempt)
    number = await run_in_threadpool(
        lambda: by.client.subscriptions.channel(name, customer=customer)
    )
    question = Question(number, customer=customer, is_lasting=False)
    return await polled(request, question, body.wait_seconds, attempt, EMPTY)


@routes.post("/subscriptions/{name}/ack", response_model=SettledOut)
def ack_messages(
    request: Request, by: By, name: Name, body: AckIn, customer_id: Whose = None, _: Repeat = None
) -> Response:
    """Settle deliveries; a stale ack id changes nothing and is told so."""
    return once(
        request,
        by,
        lambda client: client.subscriptions.ack(
            name, body.ack_ids, customer=whose(by, customer_id)
        ),
        lambda told: {"outcomes": told},
    )


@routes.post("/subscriptions/{name}/nack", response_model=SettledOut)
def nack_messages(
    request: Request, by: By, name: Name, body: NackIn, customer_id: Whose = None, _: Repeat = None
) -> Response:
    """Give deliveries back, each with its reason."""
    nacks = nacks_of([one.model_dump() for one in body.nacks])
    return once(
        request,
        by,
        lambda client: client.subscriptions.nack(name, nacks, customer=whose(by, customer_id)),
        lambda told: {"outcomes": told},
    )


@routes.post("/subscriptions/{name}/extend", response_model=SettledOut)
def extend_messages(
    request: Request, by: By, name: Name, body: ExtendIn, customer_id: Whose = None,
    _: Repeat = None,
) -> Response:  # fmt: skip
    """Move deadlines of deliveries that take longer."""
    return once(
        request,
        by,
        lambda client: client.subscriptions.extend(
            name, body.ack_ids, body.ack_deadline_seconds, customer=whose(by, customer_id)
        ),
        lambda told: {"outcomes": told},
    )


@routes.post("/subscriptions/{name}/release", response_model=SettledOut)
def release_messages(
    request: Request, by: By, name: Name, body: AckIn, customer_id: Whose = None, _: Repeat = None
) -> Response:
    """Give back deliveries that were not tried: ready at once, and no attempt is counted."""
    return once(
        request,
        by,
        lambda client: client.subscriptions.release(
            name, body.ack_ids, customer=whose(by, customer_id)
        ),
        lambda told: {"outcomes": told},
    )


@routes.post("/subscriptions/{name}/pause", response_model=SubscriptionOut)
def pause_subscription(
    request: Request, by: By, name: Name, body: PausedIn, customer_id: Whose = None,
    _: Repeat = None,
) -> Response:  # fmt: skip
    """Stop handing over, or go on; what is out may still be acked."""
    return once(
        request,
        by,
        lambda client: client.subscriptions.pause(
            name, body.is_paused, customer=whose(by, customer_id), actor=by.actor
        ),
        subscription_shape,
    )


@routes.post("/subscriptions/{name}/seek", response_model=SeekOut)
def seek_subscription(
    request: Request, by: By, name: Name, body: SeekIn, customer_id: Whose = None,
    _: Repeat = None,
) -> Response:  # fmt: skip
    """Go to a time: what was published since comes again, what is older is purged."""
    to = moment(body.time, "time")
    assert to is not None
    return remembered(
        request,
        by,
        lambda: by.client.subscriptions.seek(
            name, to, customer=whose(by, customer_id), actor=by.actor
        ),
        seek_shape,
    )


@routes.post("/subscriptions/{name}/purge", response_model=PurgeOut)
def purge_subscription(
    request: Request, by: By, name: Name, customer_id: Whose = None, _: Repeat = None
) -> Response:
    """Drop everything that waits."""
    return remembered(
        request,
        by,
        lambda: by.client.subscriptions.purge(
            name, customer=whose(by, customer_id), actor=by.actor
        ),
        lambda count: {"purged": count},
    )
