"""Routes of deliveries: pull, ack, nack, extend, release."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.access.api_keys import Permission
from penstock.bus.client.subscriptions import Subscriptions
from penstock.core.records.record import encode_record
from penstock.server.polling.long_poll import long_poll
from penstock.server.polling.poll_hub import PollKey
from penstock.server.routing.call import Call
from penstock.server.routing.declare import RouteList

routes = RouteList(
    "deliveries",
    "Messages of a subscription: pull, ack, nack, extend, release.",
    group="subscriptions",
)
_ACK = "AAAAAAAAAAEAAAAAAAAAAQAAAAGYJFsu"


def _response(found: Any) -> Response:
    body = encode_record({"received_messages": found})
    return Response(body, media_type="application/json")


EMPTY = _response([])


async def pull_messages(
    call: Call,
    name: str,
    max_messages: int = 100,
    wait_seconds: float = 0,
    customer: str | None = None,
) -> Any:
    """Pull messages; a request that waits holds no thread."""
    subscriptions = call.client.subscriptions

    def attempt() -> Response:
        return _response(subscriptions.pull(name, max_messages=max_messages, customer=customer))

    # With an Idempotency-Key the first response is final, so the request does not wait.
    if call.idempotency_key is not None:
        return await run_in_threadpool(
            call.action,
            lambda client: {
                "received_messages": client.subscriptions.pull(
                    name, max_messages=max_messages, customer=customer
                )
            },
        )
    if wait_seconds == 0:
        return await run_in_threadpool(attempt)
    owner = call.customer if customer is None else customer
    number = await run_in_threadpool(subscriptions.channel, name, customer=customer)
    question = PollKey(number, customer=owner, keep_listening=False)
    return await long_poll(call.request, question, wait_seconds, attempt, EMPTY)


routes.post(
    "/subscriptions/{name}/pull",
    Permission.WORK,
    Subscriptions.pull,
    serve=pull_messages,
    query=("customer",),
    result_field="received_messages",
    example={"max_messages": 100, "wait_seconds": 20},
)
routes.post(
    "/subscriptions/{name}/ack",
    Permission.WORK,
    Subscriptions.ack,
    query=("customer",),
    result_field="outcomes",
    example={"ack_ids": [_ACK]},
)
routes.post(
    "/subscriptions/{name}/nack",
    Permission.WORK,
    Subscriptions.nack,
    query=("customer",),
    result_field="outcomes",
    example={
        "nacks": [{"ack_id": _ACK, "kind": "poison", "error_type": "SCHEMA", "error": "no team"}]
    },
)
routes.post(
    "/subscriptions/{name}/extend",
    Permission.WORK,
    Subscriptions.extend,
    query=("customer",),
    result_field="outcomes",
    example={"ack_ids": [_ACK], "ack_deadline_seconds": 60},
)
routes.post(
    "/subscriptions/{name}/release",
    Permission.WORK,
    Subscriptions.release,
    query=("customer",),
    result_field="outcomes",
    example={"ack_ids": [_ACK]},
)
