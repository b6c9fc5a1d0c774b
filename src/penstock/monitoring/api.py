"""Routes of the overview, metrics, alerts, processes, pipelines and pauses."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from penstock.access.api_keys import Permission
from penstock.monitoring.api_models import ChangedOut, PauseIn, PauseOut
from penstock.monitoring.client import Views
from penstock.schedules.shapes import pause_shape
from penstock.server.params import CurrentCaller, IdempotencyKey, renaming_field, router
from penstock.server.responses import idempotent_write, json_response
from penstock.server.routing.declare import RouteList

routes = RouteList("views", "Overview, metrics, pipelines, alerts, pauses.")
pause_routes = router("views")

routes.get("/dashboard/pipeline-status", Permission.READ, Views.overview)
routes.get("/customers/{customer_id}/metrics", Permission.READ, Views.metrics)
routes.get("/alerts", Permission.READ, Views.alerts)
routes.get("/sessions", Permission.READ, Views.sessions, covers_all_customers=True)
routes.get("/pipelines", Permission.READ, Views.pipelines)
routes.get("/pipelines/{pipeline}", Permission.READ, Views.pipeline)


@pause_routes.get("/pauses", response_model=list[PauseOut])
def list_pauses(by: CurrentCaller) -> Response:
    """List active pauses."""
    return json_response([pause_shape(pause) for pause in by.client.pauses.in_force()])


@pause_routes.post("/pauses", response_model=ChangedOut)
def pause(request: Request, by: CurrentCaller, body: PauseIn, _: IdempotencyKey = None) -> Response:
    """Pause everything, a customer, a pipeline or a config. Active runs continue."""
    with renaming_field("subject", ("customer_id", "cfg_id", "pipeline")):
        return idempotent_write(
            request,
            by,
            lambda client: client.pauses.pause(
                body.scope, body.subject, reason=body.reason, actor=by.actor
            ),
            lambda changed: {"changed": changed},
        )


@pause_routes.post("/pauses/resume", response_model=ChangedOut)
def resume(
    request: Request, by: CurrentCaller, body: PauseIn, _: IdempotencyKey = None
) -> Response:
    """Lift a pause and release the runs that it held back."""
    with renaming_field("subject", ("customer_id", "cfg_id", "pipeline")):
        return idempotent_write(
            request,
            by,
            lambda client: client.pauses.resume(
                body.scope, body.subject, reason=body.reason, actor=by.actor
            ),
            lambda changed: {"changed": changed},
        )
