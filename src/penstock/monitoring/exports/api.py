"""Route of exports."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.monitoring.exports.client import Exports
from penstock.server.routing.declare import RouteList

routes = RouteList("exports", "Pages of history with plain values.")

routes.get("/exports/{kind}", Permission.READ, Exports.page)
