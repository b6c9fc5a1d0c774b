"""Routes of limits."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.limits.client import Limits
from penstock.server.routing.declare import RouteList

routes = RouteList("limits", "Shared capacity and rates: holders, queues, learned capacity.")

routes.get("/limits", Permission.READ, Limits.list, covers_all_customers=True)
routes.get("/limits/detail", Permission.READ, Limits.get, covers_all_customers=True)
routes.post(
    "/limits",
    Permission.OPERATE,
    Limits.declare,
    covers_all_customers=True,
    example={"name": "bq:nba_raw.br_rosters_current", "capacity": 10, "adaptive": True},
)
routes.post(
    "/limits/release",
    Permission.OPERATE,
    Limits.release,
    covers_all_customers=True,
    example={"lease_id": "lease_5m7t0c2d", "reason": "its machine is gone"},
)
