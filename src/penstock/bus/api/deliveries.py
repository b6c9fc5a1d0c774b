"""Routes of deliveries: pull, ack, nack, extend, release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.bus.api.models import AckIn, ExtendIn, NackIn, PullIn, PullOut, SettledOut
from penstock.bus.api.subscriptions import Name
from penstock.bus.api.topics import Whose, whose
from penstock.bus.client.requests import nacks_of
from penstock.bus.client.subscriptions import Subscriptions
from penstock.bus.message import Delivery
from penstock.bus.shapes import delivery_shape
from penstock.server.auth import Caller
from penstock.server.params import By, Repeat, router
from penstock.server.polling.long_poll import polled
from penstock.server.polling.poll_hub import Question
from penstock.server.responses import answer, once, remembered

routes = router("deliveries")
EMPTY = answer({"received_messages": []})


@routes.post("/subscriptions/{name}/pull", response_model=PullOut)
async def pull_messages(
    request: Request, by: By, name: Name, body: PullIn, customer_id: Whose = None,
    key: Repeat = None,
) -> Response:  # fmt: skip
    """Lease messages of a subscription. With `wait_seconds` the request waits if none is ready."""
    customer = whose(by, customer_id)

    def pulled() -> list[Delivery]:
        return by.client.subscriptions.pull(name, max_messages=body.max_messages, customer=customer)

    def shaped(found: list[Delivery]) -> Any:
        return {"received_messages": [delivery_shape(one) for one in found]}

    # With an Idempotency-Key the first response is final, so the request does not wait.
    if key is not None:
        return await run_in_threadpool(lambda: remembered(request, by, pulled, shaped))

    def attempt() -> Response:
        return answer(shaped(pulled()))

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
    """Acknowledge deliveries. A stale ack id changes nothing and is reported as `stale`."""
    customer = whose(by, customer_id)
    return _settled(request, by, lambda at: at.ack(name, body.ack_ids, customer=customer))


@routes.post("/subscriptions/{name}/nack", response_model=SettledOut)
def nack_messages(
    request: Request, by: By, name: Name, body: NackIn, customer_id: Whose = None, _: Repeat = None
) -> Response:
    """Return deliveries, each with its reason. They are redelivered or become dead letters."""
    nacks = nacks_of([one.model_dump() for one in body.nacks])
    customer = whose(by, customer_id)
    return _settled(request, by, lambda at: at.nack(name, nacks, customer=customer))


@routes.post("/subscriptions/{name}/extend", response_model=SettledOut)
def extend_messages(
    request: Request, by: By, name: Name, body: ExtendIn, customer_id: Whose = None,
    _: Repeat = None,
) -> Response:  # fmt: skip
    """Extend the ack deadlines of deliveries."""
    customer, seconds = whose(by, customer_id), body.ack_deadline_seconds
    return _settled(
        request, by, lambda at: at.extend(name, body.ack_ids, seconds, customer=customer)
    )


@routes.post("/subscriptions/{name}/release", response_model=SettledOut)
def release_messages(
    request: Request, by: By, name: Name, body: AckIn, customer_id: Whose = None, _: Repeat = None
) -> Response:
    """Return unprocessed deliveries. They are ready at once and no attempt is counted."""
    customer = whose(by, customer_id)
    return _settled(request, by, lambda at: at.release(name, body.ack_ids, customer=customer))


def _settled(
    request: Request, by: Caller, settle: Callable[[Subscriptions], Sequence[str]]
) -> Response:
    """Settle deliveries once, even if the request is repeated; return each outcome."""
    return once(
        request,
        by,
        lambda client: settle(client.subscriptions),
        lambda outcomes: {"outcomes": outcomes},
    )
