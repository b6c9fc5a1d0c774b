"""Routes of tracking: the execution log of a cause, and search."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.server.routing.declare import RouteList
from penstock.tracking.client import Tracking

routes = RouteList("tracking", "Executions of one cause; search for any object.")

routes.get("/executions", Permission.READ, Tracking.executions)
routes.get("/find", Permission.READ, Tracking.find)
