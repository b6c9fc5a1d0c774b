"""Routes of pauses."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.schedules.client.pauses import Pauses
from penstock.server.routing.declare import RouteList

routes = RouteList("pauses", "Pauses of customers, pipelines and configs.")

_EXAMPLE = {"scope": "customer", "subject": "acme", "reason": "migration"}

routes.get("/pauses", Permission.READ, Pauses.list)
routes.post("/pauses", Permission.OPERATE, Pauses.pause, example=_EXAMPLE)
routes.post("/pauses/resume", Permission.OPERATE, Pauses.resume, example=_EXAMPLE)
