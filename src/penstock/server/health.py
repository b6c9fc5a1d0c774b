"""Routes of health, readiness, the OpenAPI document and metrics."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.access.api_keys import Permission
from penstock.core.errors import StoreError
from penstock.server.metrics import Metrics
from penstock.server.openapi.problems import PROBLEMS
from penstock.server.problems import problem, request_id_of
from penstock.server.responses import json_response, prepared_response
from penstock.server.routing.call import Call
from penstock.server.routing.declare import RouteList
from penstock.server.routing.plain import PlainRoute


async def healthz(_: Request) -> Response:
    """Report that the process is alive. The database is not contacted."""
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Report readiness: the database accepts writes, requests progress, no shutdown has begun."""
    if request.app.state.is_draining:
        return _unready(request, "draining", "The process is stopping.")
    if request.app.state.admission_queue.is_stuck:
        return _unready(request, "overloaded", "No request has finished for 10 seconds.")
    try:
        await request.app.state.ping.get()
    except StoreError:
        return _unready(request, "store.unavailable", "The database does not respond.")
    try:
        await request.app.state.write_check.get()
    except StoreError:
        return _unready(request, "store.unavailable", "The database does not accept writes.")
    return json_response({"status": "ready"})


async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return prepared_response(await request.app.state.document.get())


def read_metrics(call: Call) -> Response:
    """Return metrics in the Prometheus text format."""
    meters: Metrics = call.request.app.state.meters
    return meters.response()


def _unready(request: Request, code: str, detail: str) -> Response:
    return problem(
        503, code, detail, request_id=request_id_of(request), headers={"Retry-After": "1"}
    )


def _operation(name: str, text: str, status: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"type": "string", "description": status}},
    }
    return {
        "tags": ["health"],
        "operationId": name,
        "summary": text.partition(". ")[0].rstrip("."),
        "description": text,
        "parameters": [],
        "security": [],
        "responses": {
            "200": {"description": status, "content": {"application/json": {"schema": schema}}}
        },
    }


_READY: Final = _operation("readyz", readyz.__doc__ or "", "The process can serve requests.")
_READY["responses"]["503"] = {
    **PROBLEMS[503],
    "description": "The process cannot serve requests.",
}

plain_routes: Final = (
    PlainRoute(
        method="GET",
        path="/healthz",
        endpoint=healthz,
        operation=_operation("healthz", healthz.__doc__ or "", "The process is alive."),
    ),
    PlainRoute(method="GET", path="/readyz", endpoint=readyz, operation=_READY),
    PlainRoute(method="GET", path="/openapi.json", endpoint=openapi),
)

routes = RouteList("health", "Health and metrics for load balancers and monitoring.", prefix="")
routes.get("/metrics", Permission.READ, read_metrics, covers_all_customers=True, media="text/plain")
