"""Routes of analytics."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.analytics.client import Analytics
from penstock.server.routing.declare import RouteList

routes = RouteList("analytics", "Statistics on ended work: dependencies, trends, series.")

routes.get("/dependencies/health", Permission.READ, Analytics.dependency_health)
routes.get("/trends", Permission.READ, Analytics.trends)
routes.get("/series/runs", Permission.READ, Analytics.run_series)
routes.get("/analytics/acknowledgments", Permission.READ, Analytics.acknowledgments)
routes.get("/analytics/validation-failures", Permission.READ, Analytics.validation_failures)
routes.get("/analytics/overrides", Permission.READ, Analytics.overrides)
routes.get("/analytics/end-to-end", Permission.READ, Analytics.end_to_end)
