"""Routes of service levels."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.server.routing.declare import RouteList
from penstock.slos.client import Slos

routes = RouteList("slos", "Service levels: targets, error budgets, breaches.")

routes.get("/slos", Permission.READ, Slos.list)
routes.get("/slos/breaches", Permission.READ, Slos.breaches)
