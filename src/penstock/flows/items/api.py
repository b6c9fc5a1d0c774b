"""Routes of items: counts, lists and retries."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.flows.items.client import Items
from penstock.server.routing.declare import RouteList

routes = RouteList("items", "Items of processors that have one run each: list, count, retry.")

routes.get("/flows/{flow_id}/items", Permission.READ, Items.list)
routes.get("/flows/{flow_id}/items/summary", Permission.READ, Items.summary)
routes.post(
    "/flows/{flow_id}/items/retry",
    Permission.OPERATE,
    Items.retry,
    example={"processor": "game_summary", "match": "0022500*"},
)
