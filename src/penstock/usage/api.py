"""Routes of usage: budgets, anomalies, pools."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.server.routing.declare import RouteList
from penstock.usage.client.anomalies import Anomalies
from penstock.usage.client.budgets import Budgets
from penstock.usage.client.pools import Pools

routes = RouteList("usage", "Usage: budgets, anomalies, the load of pools.")

routes.get("/budgets", Permission.READ, Budgets.list, group="budgets")
routes.post(
    "/budgets",
    Permission.OPERATE,
    Budgets.set,
    group="budgets",
    covers_all_customers=True,
    example={"scope": "customer", "subject": "acme", "amount": 250.0, "hard_stop": True},
)
routes.post(
    "/budgets/{scope}/{subject}/lift",
    Permission.OPERATE,
    Budgets.lift,
    group="budgets",
    covers_all_customers=True,
    example={"period": "month", "reason": "the contract was extended"},
)
routes.delete(
    "/budgets/{scope}/{subject}",
    Permission.OPERATE,
    Budgets.remove,
    group="budgets",
    covers_all_customers=True,
)
routes.get("/anomalies", Permission.READ, Anomalies.list, group="anomalies")
routes.get("/pools", Permission.READ, Pools.list, group="pools", covers_all_customers=True)
routes.get(
    "/pools/{pool}/desired-workers",
    Permission.READ,
    Pools.desired_workers,
    group="pools",
    covers_all_customers=True,
)
