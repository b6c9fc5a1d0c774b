"""Routes of runs: submit, list, show, cancel, retry."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.runs.client.runs import Runs
from penstock.server.routing.declare import RouteList

routes = RouteList("runs", "Submit, list, cancel and retry runs.")

routes.post(
    "/customers/{customer_id}/pipeline-runs",
    Permission.OPERATE,
    Runs.submit,
    status=201,
    example={
        "pipeline_template": "cost_billing",
        "partition": "2025-12-31",
        "parameters": {"billing_account_id": "012345-ABCDEF-678900"},
    },
)
routes.get(
    "/customers/{customer_id}/pipeline-runs",
    Permission.READ_RUNS,
    Runs.list,
    operation="list_customer",
)
routes.get(
    "/pipeline-runs",
    Permission.READ_RUNS,
    Runs.list,
    covers_all_customers=True,
    fixed={"customer": None},
)
routes.get("/pipeline-runs/counts", Permission.READ_RUNS, Runs.counts)
routes.get("/pipeline-runs/{run_id}", Permission.READ_RUNS, Runs.detail)
routes.get("/pipeline-runs/{run_id}/logs", Permission.READ_RUNS, Runs.logs)
routes.get("/pipeline-runs/{run_id}/upstream", Permission.READ_RUNS, Runs.upstream)
routes.post(
    "/pipeline-runs/{run_id}/cancel",
    Permission.OPERATE,
    Runs.cancel,
    example={"reason": "submitted by mistake"},
)
routes.post(
    "/pipeline-runs/{run_id}/retry",
    Permission.OPERATE,
    Runs.retry,
    status=201,
    example={"parameters": {"provider": "google_ads"}},
)
