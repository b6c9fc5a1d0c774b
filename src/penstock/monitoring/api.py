"""Routes of the overview, metrics, processes and pipelines."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.monitoring.client.views import Views
from penstock.server.routing.declare import RouteList

routes = RouteList("views", "Overview, metrics, pipelines, processes.")

routes.get("/dashboard/pipeline-status", Permission.READ, Views.overview)
routes.get("/dashboard/today", Permission.READ, Views.today)
routes.get("/customers", Permission.READ, Views.customers)
routes.get("/customers/{customer_id}/metrics", Permission.READ, Views.metrics)
routes.get("/customers/{customer_id}/health", Permission.READ, Views.customer_health)
routes.get("/sessions", Permission.READ, Views.sessions, covers_all_customers=True)
routes.get("/system", Permission.READ, Views.system, covers_all_customers=True)
routes.get("/pipelines", Permission.READ, Views.pipelines)
routes.get("/pipelines/{pipeline}", Permission.READ, Views.pipeline)
routes.get(
    "/dashboard/customer-counts", Permission.READ, Views.customer_counts, covers_all_customers=True
)
routes.get("/dashboard/longest-running", Permission.READ, Views.longest_running)
routes.get("/dashboard/last-failures", Permission.READ, Views.last_failures)
routes.get("/journal", Permission.READ, Views.journal)
routes.get("/seals", Permission.READ, Views.seals, covers_all_customers=True)
routes.post(
    "/seals/compare",
    Permission.READ,
    Views.compare_heads,
    covers_all_customers=True,
    example={"heads": [{"block": 1, "head": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c"}]},
)
routes.get(
    "/verification", Permission.OPERATE, Views.verify, covers_all_customers=True, is_slow=True
)
