"""Routes of deliveries: pull, ack, nack, extend, release."""

from __future__ import annotations

from typing import Any

from penstock.access.api_keys import Permission
from penstock.bus.client.subscriptions import Subscriptions
from penstock.client import UseCaseGroups
from penstock.server.polling.poll_hub import PollKey
from penstock.server.routing.call import Call
from penstock.server.routing.declare import RouteList

routes = RouteList(
    "deliveries",
    "Messages of a subscription: pull, ack, nack, extend, release.",
    group="subscriptions",
)
_ACK = "AAAAAAAAAAEAAAAAAAAAAQAAAAGYJFsu"


async def pull_messages(
    call: Call,
    name: str,
    max_messages: int = 100,
    wait_seconds: float = 0,
    customer: str | None = None,
) -> Any:
    """Pull messages; a request that waits holds no thread."""
    # Imported here because clients read the declarations of these routes without a server.
    from starlette.concurrency import run_in_threadpool

    from penstock.server.polling.long_poll import long_poll  # as above

    subscriptions = call.client.subscriptions

    def pull(client: UseCaseGroups) -> dict[str, Any]:
        found = client.subscriptions.pull(name, max_messages=max_messages, customer=customer)
        return {"received_messages": found}

    # With an Idempotency-Key the first response is final, so the request does not wait.
    if call.idempotency_key is not None:
        return await run_in_threadpool(call.action, pull)
    if wait_seconds == 0:
        return await run_in_threadpool(pull, call.client)
    owner = call.customer if customer is None else customer
    number = await run_in_threadpool(subscriptions.channel, name, customer=customer)
    question = PollKey(number, customer=owner, keep_listening=False)
    empty: dict[str, Any] = {"received_messages": []}
    return await long_poll(call, question, wait_seconds, lambda: pull(call.client), empty)


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
    example={
        "ack_ids": [_ACK],
        "handled": [{"outcome": "applied", "duration_seconds": 0.25}],
        "service": "rosters",
        "revision": "rosters-00042",
    },
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
