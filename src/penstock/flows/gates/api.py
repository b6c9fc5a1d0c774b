"""Routes of gates, overrides and interventions."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.flows.gates.client.gates import Gates
from penstock.flows.gates.client.overrides import Interventions, Overrides
from penstock.server.routing.declare import RouteList

routes = RouteList("gates", "Gates: check, history, what-if; overrides and interventions.")

routes.post(
    "/gates/check",
    Permission.READ,
    Gates.check,
    is_slow=True,
    example={"pipeline_template": "nba", "phase": "analytics", "partition": "2025-12-31"},
)
routes.post(
    "/gates/recheck",
    Permission.OPERATE,
    Gates.recheck,
    example={"pipeline_template": "nba", "partition": "2025-12-31"},
)
routes.get("/gates/decisions", Permission.READ, Gates.decisions)
routes.post(
    "/gates/what-if",
    Permission.READ,
    Gates.what_if,
    example={"pipeline_template": "nba", "changes": {"min_quality": 0.9}, "limit": 20},
)
routes.post(
    "/gates/backtest",
    Permission.READ,
    Gates.backtest,
    is_slow=True,
    example={"pipeline_template": "nba", "changes": {"proceed_at": 95}, "days": 90},
)
routes.get("/overrides", Permission.READ, Overrides.list, group="overrides")
routes.post(
    "/overrides",
    Permission.OPERATE,
    Overrides.grant,
    group="overrides",
    status=201,
    fixed={"source": "api"},
    example={
        "pipeline_template": "nba",
        "partition": "2025-12-31",
        "phase": "analytics",
        "dependency": "nba_raw.odds_props",
        "reason": "the provider is down until tomorrow",
        "expires": "4h",
    },
)
routes.post(
    "/overrides/{override_id}/revoke",
    Permission.OPERATE,
    Overrides.revoke,
    group="overrides",
    example={"reason": "the data has come"},
)
routes.get("/interventions", Permission.READ, Interventions.list, group="interventions")
routes.get(
    "/interventions/{intervention_id}", Permission.READ, Interventions.get, group="interventions"
)
routes.post(
    "/interventions/{intervention_id}/resolve",
    Permission.OPERATE,
    Interventions.resolve,
    group="interventions",
    example={"resolution": "the missing days were loaded manually"},
)
routes.post(
    "/interventions/{intervention_id}/approve",
    Permission.OPERATE,
    Interventions.approve,
    group="interventions",
    status=201,
    example={"reason": "the source confirmed that the day has no games", "expires": "24h"},
)
