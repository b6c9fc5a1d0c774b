"""Routes of configs: create, change, start and preview them; audit trail and occurrences."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.schedules.api.bulk import create_configs_bulk
from penstock.schedules.client.bulk import ITEMS_MAX
from penstock.schedules.client.configs import Configs
from penstock.schedules.records import BulkOutcome, NewConfig
from penstock.server.routing.declare import Idempotency, Ndjson, RouteList

routes = RouteList("configs", "Schedules of customers: create, change, preview, audit.")

_CONFIG = {
    "pipeline_template": "cost_billing",
    "provider": "GCP",
    "domain": "COST",
    "schedule_cron": "0 2 * * *",
    "timezone": "America/New_York",
    "parameters": {"billing_account_id": "012345-ABCDEF-678900"},
    "retry_config": {"max_attempts": 3, "backoff_multiplier": 2},
    "priority": 7,
}

routes.post(
    "/customers/{customer_id}/pipeline-configs",
    Permission.OPERATE,
    Configs.create,
    status=201,
    etag="version",
    example={**_CONFIG, "reason": "new contract"},
)
routes.get("/customers/{customer_id}/pipeline-configs", Permission.READ, Configs.list_of)
routes.post(
    "/pipeline-configs/bulk",
    Permission.OPERATE,
    Configs.create_bulk,
    serve=create_configs_bulk,
    query=("dry_run", "with_configs"),
    idempotency=Idempotency.FUNCTION,
    ndjson=Ndjson(
        parameter="configs",
        item=NewConfig,
        outcome=BulkOutcome,
        items_max=ITEMS_MAX,
        example={"customer_id": "acme", **_CONFIG},
    ),
)
routes.get("/pipeline-configs", Permission.READ, Configs.list)
routes.get("/schedules/due", Permission.READ, Configs.due)
routes.get("/pipeline-configs/{config_id}", Permission.READ, Configs.get, etag="version")
routes.patch(
    "/pipeline-configs/{config_id}",
    Permission.OPERATE,
    Configs.update,
    etag="version",
    example={"schedule_cron": "30 2 * * *", "version": 3, "reason": "source is late"},
)
routes.delete(
    "/pipeline-configs/{config_id}",
    Permission.OPERATE,
    Configs.delete,
    status=204,
    fixed={"version": None},
)
routes.post(
    "/pipeline-configs/{config_id}/start",
    Permission.OPERATE,
    Configs.start,
    status=201,
    fixed={"message_id": None},
    example={"trigger_source": "manual"},
)
routes.get("/pipeline-configs/{config_id}/preview", Permission.READ, Configs.preview)
routes.post(
    "/schedules/preview",
    Permission.READ,
    Configs.preview_of,
    example={"schedule_cron": "0 2 * * *", "timezone": "Europe/Berlin", "n": 3},
)
routes.get("/pipeline-configs/{config_id}/audit", Permission.READ, Configs.audit_of)
routes.get("/customers/{customer_id}/audit", Permission.READ, Configs.audit)
routes.get("/pipeline-configs/{config_id}/occurrences", Permission.READ, Configs.occurrences)
