"""Routes of usage: budgets, anomalies, pools."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.server.routing.declare import RouteList
from penstock.usage.client.anomalies import Anomalies
from penstock.usage.client.budgets import Budgets
from penstock.usage.client.pools import Pools

routes = RouteList("usage", "Usage: budgets, anomalies, the load of pools.")

routes.get("/budgets", Permission.READ, Budgets.list)
routes.post("/budgets", Permission.OPERATE, Budgets.set)
routes.post("/budgets/{scope}/{subject}/lift", Permission.OPERATE, Budgets.lift)
routes.delete("/budgets/{scope}/{subject}", Permission.OPERATE, Budgets.remove)
routes.get("/anomalies", Permission.READ, Anomalies.list)
routes.get("/pools", Permission.READ, Pools.list, covers_all_customers=True)
routes.get(
    "/pools/{pool}/desired-workers",
    Permission.READ,
    Pools.desired_workers,
    covers_all_customers=True,
)
