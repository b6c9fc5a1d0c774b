"""Routes of detection."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.detection.client import Detections
from penstock.server.routing.declare import RouteList

routes = RouteList("detections", "Late, stuck, missing and at-risk work.")

routes.get("/detections", Permission.READ, Detections.list, is_slow=True)
routes.get("/flows/{flow_id}/risk", Permission.READ, Detections.risk)
routes.get("/freshness", Permission.READ, Detections.freshness, covers_all_customers=True)
