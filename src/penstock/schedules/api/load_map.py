"""Routes of the load map."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.schedules.load_map.client import Schedules
from penstock.server.routing.declare import RouteList

routes = RouteList("schedules", "Scheduled starts of the coming hours, and their jitter.")

routes.get("/schedules/load", Permission.READ, Schedules.load)
routes.post(
    "/schedules/jitter",
    Permission.OPERATE,
    Schedules.jitter,
    example={"above": 100, "tolerance_minutes": 15},
    covers_all_customers=True,
)
