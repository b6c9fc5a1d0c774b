"""Routes of flows: list, show, explain, trigger, cancel; external completions; traces."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.flows.client.flows import Flows
from penstock.flows.client.trigger_preview import Previews
from penstock.flows.explain.client import Diagnostics
from penstock.server.routing.declare import RouteList

routes = RouteList("flows", "Flows: trigger, report, explain, trace, cancel.")

_FLOW = {"pipeline_template": "nba", "partition": "2025-12-31", "phases": ["predict"]}

routes.get("/flows", Permission.READ, Flows.list)
routes.post("/flows", Permission.OPERATE, Flows.trigger, status=201, example=_FLOW)
routes.post("/flows/preview", Permission.READ, Previews.trigger, group="previews", example=_FLOW)
routes.get("/grid", Permission.READ, Flows.grid)
routes.get("/flows/{flow_id}", Permission.READ, Flows.get)
routes.get(
    "/flows/{flow_id}/explain", Permission.READ, Diagnostics.explain_flow, group="diagnostics"
)
routes.get("/flows/{flow_id}/why", Permission.READ, Diagnostics.why_flow, group="diagnostics")
routes.post(
    "/flows/{flow_id}/cancel",
    Permission.OPERATE,
    Flows.cancel,
    example={"reason": "triggered for the wrong day"},
)
routes.get("/explain", Permission.READ, Diagnostics.explain, group="diagnostics")
routes.get("/pipeline-runs/{run_id}/why", Permission.READ, Diagnostics.why_run, group="diagnostics")
routes.get(
    "/pipeline-configs/{config_id}/why",
    Permission.READ,
    Diagnostics.why_config,
    group="diagnostics",
)
routes.get(
    "/customers/{customer_id}/why", Permission.READ, Diagnostics.why_customer, group="diagnostics"
)
routes.get("/traces/{correlation_id}", Permission.READ, Diagnostics.trace, group="diagnostics")
routes.get("/entities", Permission.READ, Diagnostics.entity, group="diagnostics")
routes.post(
    "/events",
    Permission.WORK,
    Flows.complete,
    status=202,
    example={
        "pipeline_template": "nba",
        "processor_name": "nbac_player_boxscore",
        "phase": "raw",
        "partition": "2025-12-31",
        "status": "success",
        "execution_id": "exec-7f3a",
        "processing_mode": "overnight",
        "completeness": {"total_expected": 200, "total_processed": 195, "quality_score": 0.98},
        "dependency_checks": [
            {"table": "nba_raw.player_boxscores", "required_rows": 200, "found_rows": 195}
        ],
        "entities_changed": {"players": [1630567]},
    },
)
