"""Routes of breakers."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.flows.breakers.client import Breakers
from penstock.server.routing.declare import RouteList

routes = RouteList("breakers", "Breakers of phases: list, explain, reset.")

routes.get("/breakers", Permission.READ, Breakers.list)
routes.get("/breakers/explain", Permission.READ, Breakers.get)
routes.post(
    "/breakers/reset",
    Permission.OPERATE,
    Breakers.reset,
    example={
        "pipeline_template": "nba",
        "partition": "2025-12-31",
        "phase": "predict",
        "reason": "the model server is back",
    },
)
