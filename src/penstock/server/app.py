"""The app factory: routes, the middleware in front of them, and the OpenAPI document.

`build` receives all dependencies as arguments (client, clock, events, scheduler trigger), so that a
test builds the same app that `penstock up` serves.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.access.api_keys import Principal, Role
from penstock.audit.telemetry import Events, Served
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.core.errors import StoreError
from penstock.server import problems
from penstock.server.auth import Caller, KeyCache
from penstock.server.context import ApiOptions, Trigger
from penstock.server.metrics import Metrics
from penstock.server.openapi.document import describe
from penstock.server.overload.admission_queue import AdmissionQueue
from penstock.server.overload.load_shedding import LoadShedder
from penstock.server.overload.middleware import AccessRecord, RequestMiddleware
from penstock.server.params import PROBLEMS, CurrentCaller
from penstock.server.polling.poll_hub import LongPolls
from penstock.server.push_auth import PushAuth
from penstock.server.responses import json_response
from penstock.server.route import StrictRoute
from penstock.server.routes import Routes
from penstock.server.routing.endpoint import starlette_route

DESCRIPTION = """Configs, runs, external workers and metrics.

Authenticate with `Authorization: Bearer pnk_…`. Errors are problem documents (RFC 9457). Every
POST accepts an `Idempotency-Key`. Resources of another customer are answered with 404, as if they
did not exist; no route answers 410."""


SPARE_THREADS = 2
"""Threads reserved for worker calls and health checks, so that they never wait for a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The app with the parts that serve it."""

    app: RequestMiddleware
    load_shedder: LoadShedder
    fastapi: FastAPI
    waiting: LongPolls


def build(
    client: Client,
    routes: Routes,
    *,
    options: ApiOptions,
    clock: Clock,
    events: Events,
    trigger: Trigger,
    receiving: PushAuth | None = None,
) -> Api:
    """Build the API over a client; `receiving` configures incoming pushes."""
    waiting = LongPolls(lambda channel: client.store.listen([channel]))
    meters = Metrics(client, lambda: waiting.count)
    events.subscribe(meters.on_event)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threads = anyio.to_thread.current_default_thread_limiter()
        threads.total_tokens = options.threads + SPARE_THREADS
        secret = await anyio.to_thread.run_sync(client.keys.server_secret, "cursor")
        app.state.cursor_secret = secret.encode()
        yield
        waiting.close()

    app = outline(routes, lifespan)
    problems.install(app)
    _state(app, client, options, clock=clock, trigger=trigger, waiting=waiting, meters=meters)
    app.state.receiving = receiving or PushAuth()
    app.state.events = events
    app.openapi = lambda: _document(app, routes)  # type: ignore[method-assign]

    def record(access: AccessRecord) -> None:
        meters.record(access)
        if events.has_subscribers:
            events.emit(
                Served(
                    request_id=access.request_id,
                    method=access.method,
                    path=access.path,
                    status=access.status,
                    seconds=round(access.seconds, 6),
                    key=access.key,
                    customer_id=access.customer,
                )
            )

    queue = AdmissionQueue(concurrency=options.threads, most=options.inflight, clock=clock)
    guard = RequestMiddleware(
        app,
        clock=clock,
        queue=queue,
        fast_path_max=options.worker_inflight,
        body_max=options.body_max,
        record=record,
    )
    keyring: KeyCache = app.state.keyring
    guard.fast_path = routes.fastpath(keyring, client)
    return Api(app=guard, load_shedder=LoadShedder(queue, record), fastapi=app, waiting=waiting)


def outline(routes: Routes, lifespan: Callable[[FastAPI], Any] | None = None) -> FastAPI:
    """Return an app with the routes only; enough for the OpenAPI document."""
    app = FastAPI(
        title="Penstock",
        version=version("penstock"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    for router in routes.routers:
        # Add the routes themselves: `include_router` would build each again at startup (0.15 s).
        app.router.routes.extend(router.routes)
    app.router.routes.extend(starlette_route(route) for route in routes.all)
    _plain_routes(app)
    return app


def _state(
    app: FastAPI,
    client: Client,
    options: ApiOptions,
    *,
    clock: Clock,
    trigger: Trigger,
    waiting: LongPolls,
    meters: Metrics,
) -> None:
    """Set the state that routes read from the app."""
    app.state.client = client
    app.state.keyring = KeyCache(client, clock=clock, rate=options.rate)
    app.state.scheduler_token = options.scheduler_token
    app.state.scheduler = Caller(
        Principal(key_id=0, name="scheduler", role=Role.OPERATOR), client.as_actor("scheduler")
    )
    app.state.trigger = trigger
    app.state.waiting = waiting
    app.state.meters = meters
    app.state.document = None
    app.state.is_draining = False


def _plain_routes(app: FastAPI) -> None:
    """Add the routes of health, readiness, the OpenAPI document and metrics."""

    @app.get(
        "/healthz", include_in_schema=True, tags=["health"], responses=_up("The process is alive.")
    )
    async def healthz() -> Response:
        """Report that the process is alive. The database is not contacted."""
        return json_response({"status": "ok"})

    @app.get(
        "/readyz",
        tags=["health"],
        responses={
            **_up("The process can serve requests."),
            503: {**PROBLEMS[503], "description": "The process cannot serve requests."},
        },
    )
    def readyz(request: Request) -> Response:
        """Report readiness: the database answers and the process is not stopping."""
        if request.app.state.is_draining:
            return problems.problem(
                503, "draining", "The process is stopping.",
                request_id=problems.request_id_of(request), headers={"Retry-After": "1"},
            )  # fmt: skip
        try:
            request.app.state.client.views.ping()
        except StoreError:
            return problems.problem(
                503, "store.unavailable", "The database does not answer.",
                request_id=problems.request_id_of(request), headers={"Retry-After": "1"},
            )  # fmt: skip
        return json_response({"status": "ready"})

    @app.get("/openapi.json", include_in_schema=False)
    def openapi(request: Request) -> Response:
        """Return the OpenAPI document."""
        return json_response(request.app.openapi())

    def read_metrics(request: Request, by: CurrentCaller) -> Response:
        """Return metrics in the Prometheus text format."""
        assert by.customer is None
        meters: Metrics = request.app.state.meters
        return meters.response()

    app.router.add_api_route(
        "/metrics",
        read_metrics,
        methods=["GET"],
        tags=["health"],
        route_class_override=StrictRoute,
        response_class=Response,
        responses={
            **PROBLEMS,
            200: {
                "description": "Metrics in the Prometheus text format.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
        },
    )


def _up(text: str) -> dict[int | str, dict[str, Any]]:
    schema = {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"type": "string", "description": text}},
    }
    return {200: {"description": text, "content": {"application/json": {"schema": schema}}}}


def _document(app: FastAPI, routes: Routes) -> dict[str, Any]:
    """Return the OpenAPI document, building it on first use."""
    if app.state.document is None:
        app.state.document = describe(app, routes.models, routes.declared)
    document: dict[str, Any] = app.state.document
    return document
