"""Routes of subscriptions: create, change, list, pause, seek, purge."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.bus.client.subscriptions import Subscriptions
from penstock.bus.push.push_config import parse_push
from penstock.bus.records import StoredSubscription, Subscription
from penstock.bus.replay_policy import parse_auto_replay
from penstock.core.records.record import to_json_value
from penstock.server.routing.call import Call
from penstock.server.routing.declare import Idempotency, RouteList

routes = RouteList("subscriptions", "Subscriptions: create, change, pause, seek, purge.")


def declare_subscription(
    call: Call, subscription: Subscription, customer: str | None = None
) -> StoredSubscription:
    """Declare a subscription whose URLs the server's egress rules allow."""
    rules = call.request.app.state.receiving.rules
    if subscription.push is not None:
        parse_push(to_json_value(subscription.push), rules)
    if subscription.auto_replay is not None:
        parse_auto_replay(to_json_value(subscription.auto_replay), rules)
    return call.write(lambda client: client.subscriptions.declare(subscription, customer=customer))


routes.post(
    "/subscriptions",
    Permission.OPERATE,
    Subscriptions.declare,
    serve=declare_subscription,
    example={
        "name": "rosters-to-table",
        "topic": "rosters",
        "max_delivery_attempts": 10,
        "filter": 'attributes.league = "nba"',
    },
)
routes.get("/subscriptions", Permission.READ, Subscriptions.list)
routes.get("/subscriptions/{name}", Permission.READ, Subscriptions.get)
routes.get("/subscriptions/{name}/why", Permission.READ, Subscriptions.why)
routes.delete("/subscriptions/{name}", Permission.OPERATE, Subscriptions.delete)
routes.post(
    "/subscriptions/{name}/pause",
    Permission.OPERATE,
    Subscriptions.pause,
    query=("customer",),
    example={"is_paused": True},
)
routes.post(
    "/subscriptions/{name}/detach",
    Permission.OPERATE,
    Subscriptions.detach,
    query=("customer",),
    idempotency=Idempotency.ACTION,
)
routes.post(
    "/subscriptions/{name}/seek",
    Permission.OPERATE,
    Subscriptions.seek,
    query=("customer",),
    idempotency=Idempotency.ACTION,
    counts_dry=True,
    example={"time": "2025-12-31T02:00:00Z"},
)
routes.post(
    "/subscriptions/{name}/purge",
    Permission.OPERATE,
    Subscriptions.purge,
    query=("customer",),
    idempotency=Idempotency.ACTION,
    counts_dry=True,
    result_field="purged",
)
