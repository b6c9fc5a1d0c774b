"""Routes of alerts, silences, rules, channels and notices."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.alerts.client.alerts import Alerts
from penstock.server.routing.declare import RouteList

routes = RouteList("alerts", "Alerts, silences, rules, channels and notices.")

routes.get("/alerts", Permission.READ, Alerts.list)
routes.post(
    "/alerts/acknowledge",
    Permission.OPERATE,
    Alerts.acknowledge_many,
    example={"rule": "config_failing", "note": "the warehouse is down"},
)
routes.post(
    "/alerts/resolve",
    Permission.OPERATE,
    Alerts.resolve_many,
    example={"rule": "config_failing", "note": "repaired"},
)
routes.get("/alerts/{alert_id}", Permission.READ, Alerts.get)
routes.post(
    "/alerts/{alert_id}/acknowledge",
    Permission.OPERATE,
    Alerts.acknowledge,
    example={"note": "their release, back at 3"},
)
routes.post(
    "/alerts/{alert_id}/resolve", Permission.OPERATE, Alerts.resolve, example={"note": "repaired"}
)
routes.get("/silences", Permission.READ, Alerts.silences)
routes.post(
    "/silences",
    Permission.OPERATE,
    Alerts.silence,
    example={"rule": "config_failing", "duration_minutes": 60, "reason": "maintenance"},
)
routes.post("/silences/{silence_id}/end", Permission.OPERATE, Alerts.end_silence)
routes.get(
    "/alert-rules", Permission.READ, Alerts.rules, covers_all_customers=True, result_field="items"
)
routes.get(
    "/alert-channels",
    Permission.READ,
    Alerts.channels,
    covers_all_customers=True,
    result_field="items",
)
routes.post(
    "/alert-channels/{channel}/test",
    Permission.OPERATE,
    Alerts.test_channel,
    covers_all_customers=True,
)
routes.post(
    "/alert-channels/{channel}/resend",
    Permission.OPERATE,
    Alerts.resend,
    covers_all_customers=True,
    result_field="notices",
)
routes.get("/alert-notices", Permission.READ, Alerts.notices, covers_all_customers=True)
routes.get("/alert-notices/{notice_id}", Permission.READ, Alerts.notice, covers_all_customers=True)
