"""Routes of recovery: backfills, replays of flows, cancelling by filter, slow processors."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.recovery.client.backfills import Backfills
from penstock.recovery.client.recovery import Recovery
from penstock.server.routing.declare import RouteList

routes = RouteList("recovery", "Recovery: backfills, replays of flows, cancelling by filter.")

_BACKFILL = {
    "pipeline_template": "nba",
    "from": "2025-11-01",
    "to": "2025-11-30",
    "parallelism": 8,
    "dry_run": True,
}

routes.get("/backfills", Permission.READ, Backfills.list, group="backfills")
routes.post(
    "/backfills",
    Permission.OPERATE,
    Backfills.start,
    group="backfills",
    status=201,
    example=_BACKFILL,
)
routes.get("/backfills/{backfill_id}", Permission.READ, Backfills.get, group="backfills")
routes.get(
    "/backfills/{backfill_id}/partitions",
    Permission.READ,
    Backfills.partitions,
    group="backfills",
)
routes.post(
    "/backfills/{backfill_id}/pause",
    Permission.OPERATE,
    Backfills.pause,
    group="backfills",
    example={"reason": "the warehouse is busy"},
)
routes.post(
    "/backfills/{backfill_id}/resume",
    Permission.OPERATE,
    Backfills.resume,
    group="backfills",
    example={"again": True},
)
routes.post(
    "/backfills/{backfill_id}/cancel",
    Permission.OPERATE,
    Backfills.cancel,
    group="backfills",
    example={"reason": "wrong range"},
)
routes.post(
    "/flows/replay",
    Permission.OPERATE,
    Recovery.replay,
    status=201,
    example={
        "pipeline_template": "nba",
        "partition": "2025-11-15",
        "from_phase": "analytics",
        "dry_run": True,
    },
)
routes.post(
    "/cancel",
    Permission.OPERATE,
    Recovery.cancel,
    example={"customer_id": "acme", "from": "2025-11-01", "to": "2025-11-30", "dry_run": True},
)
routes.post(
    "/pipeline-configs/edit",
    Permission.OPERATE,
    Recovery.edit_configs,
    example={
        "pipeline_template": "cost_billing",
        "current_cron": "0 2 * * *",
        "change": {"schedule_cron": "0 3 * * *"},
        "dry_run": True,
    },
)
routes.get("/interventions/{intervention_id}/impact", Permission.READ, Recovery.approval_impact)
routes.get("/processors/slowest", Permission.READ, Recovery.slowest)
