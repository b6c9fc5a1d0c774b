"""Routes of audit sinks."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.server.routing.declare import RouteList
from penstock.shipping.client import AuditSinks

routes = RouteList("audit_sinks", "Progress of shipping the logs to audit sinks.")

routes.get("/audit-sink", Permission.READ, AuditSinks.status, covers_all_customers=True)
