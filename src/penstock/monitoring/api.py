"""Routes of the overview, metrics, processes and pipelines."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.monitoring.client.views import Views
from penstock.server.routing.declare import RouteList

routes = RouteList("views", "Overview, metrics, pipelines, processes.")

routes.get("/dashboard/pipeline-status", Permission.READ, Views.overview)
routes.get("/customers/{customer_id}/metrics", Permission.READ, Views.metrics)
routes.get("/sessions", Permission.READ, Views.sessions, covers_all_customers=True)
routes.get("/pipelines", Permission.READ, Views.pipelines)
routes.get("/pipelines/{pipeline}", Permission.READ, Views.pipeline)
routes.get("/dashboard/customers", Permission.READ, Views.customers, covers_all_customers=True)
routes.get("/dashboard/longest-running", Permission.READ, Views.longest_running)
routes.get("/journal", Permission.READ, Views.journal)
routes.get("/seals", Permission.READ, Views.seals, covers_all_customers=True)
routes.get(
    "/verification", Permission.OPERATE, Views.verify, covers_all_customers=True, is_slow=True
)
