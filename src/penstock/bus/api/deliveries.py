"""Routes of deliveries: pull, ack, nack, extend, release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.bus.api.models import AckIn, ExtendIn, NackIn, PullIn, PullOut, SettlementOut
from penstock.bus.api.subscriptions import Name
from penstock.bus.api.topics import OwnerId, customer_of
from penstock.bus.client.requests import nacks_of
from penstock.bus.client.subscriptions import Subscriptions
from penstock.bus.message import Delivery
from penstock.bus.shapes import delivery_shape
from penstock.server.auth import Caller
from penstock.server.params import CurrentCaller, IdempotencyKey, router
from penstock.server.polling.long_poll import long_poll
from penstock.server.polling.poll_hub import PollKey
from penstock.server.responses import idempotent_action, idempotent_write, json_response

routes = router("deliveries")
EMPTY = json_response({"received_messages": []})


@routes.post("/subscriptions/{name}/pull", response_model=PullOut)
async def pull_messages(
    request: Request, by: CurrentCaller, name: Name, body: PullIn, customer_id: OwnerId = None,
    key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Lease messages of a subscription. With `wait_seconds` the request waits if none is ready."""
    customer = customer_of(by, customer_id)

    def pulled() -> list[Delivery]:
        return by.client.subscriptions.pull(name, max_messages=body.max_messages, customer=customer)

    def shaped(found: list[Delivery]) -> Any:
        return {"received_messages": [delivery_shape(one) for one in found]}

    # With an Idempotency-Key the first response is final, so the request does not wait.
    if key is not None:
        return await run_in_threadpool(lambda: idempotent_action(request, by, pulled, shaped))

    def attempt() -> Response:
        return json_response(shaped(pulled()))

    if body.wait_seconds == 0:
        return await run_in_threadpool(attempt)
    number = await run_in_threadpool(
        lambda: by.client.subscriptions.channel(name, customer=customer)
    )
    question = PollKey(number, customer=customer, keep_listening=False)
    return await long_poll(request, question, body.wait_seconds, attempt, EMPTY)


@routes.post("/subscriptions/{name}/ack", response_model=SettlementOut)
def ack_messages(
    request: Request,
    by: CurrentCaller,
    name: Name,
    body: AckIn,
    customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Acknowledge deliveries. A stale ack id changes nothing and is reported as `stale`."""
    customer = customer_of(by, customer_id)
    return _settled(request, by, lambda at: at.ack(name, body.ack_ids, customer=customer))


@routes.post("/subscriptions/{name}/nack", response_model=SettlementOut)
def nack_messages(
    request: Request,
    by: CurrentCaller,
    name: Name,
    body: NackIn,
    customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Return deliveries, each with its reason. They are redelivered or become dead letters."""
    nacks = nacks_of([one.model_dump() for one in body.nacks])
    customer = customer_of(by, customer_id)
    return _settled(request, by, lambda at: at.nack(name, nacks, customer=customer))


@routes.post("/subscriptions/{name}/extend", response_model=SettlementOut)
def extend_messages(
    request: Request, by: CurrentCaller, name: Name, body: ExtendIn, customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Extend the ack deadlines of deliveries."""
    customer, seconds = customer_of(by, customer_id), body.ack_deadline_seconds
    return _settled(
        request, by, lambda at: at.extend(name, body.ack_ids, seconds, customer=customer)
    )


@routes.post("/subscriptions/{name}/release", response_model=SettlementOut)
def release_messages(
    request: Request,
    by: CurrentCaller,
    name: Name,
    body: AckIn,
    customer_id: OwnerId = None,
    _: IdempotencyKey = None,
) -> Response:
    """Return unprocessed deliveries. They are ready at once and no attempt is counted."""
    customer = customer_of(by, customer_id)
    return _settled(request, by, lambda at: at.release(name, body.ack_ids, customer=customer))


def _settled(
    request: Request, by: Caller, settle: Callable[[Subscriptions], Sequence[str]]
) -> Response:
    """Settle deliveries once, even if the request is repeated; return each outcome."""
    return idempotent_write(
        request,
        by,
        lambda client: settle(client.subscriptions),
        lambda outcomes: {"outcomes": outcomes},
    )
