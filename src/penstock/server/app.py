"""The app factory: routes, the middleware in front of them, and the OpenAPI document.

`build` receives all dependencies as arguments (client, clock, events, scheduler trigger), so that a
test builds the same app that `penstock up` serves.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.routing import Route as StarletteRoute

from penstock.access.api_keys import Principal, Role
from penstock.access.run_credentials import RUN_SECRET
from penstock.audit.telemetry import Events, Served
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.server import problems
from penstock.server.auth import Caller, KeyCache
from penstock.server.context import ApiOptions, Trigger
from penstock.server.metrics import Metrics, own_metrics
from penstock.server.openapi.document import describe
from penstock.server.overload.admission import Admissions, BoundedThreads
from penstock.server.overload.admission_queue import AdmissionQueue
from penstock.server.overload.connections import ConnectionTable, connections_max
from penstock.server.overload.load_shedding import LoadShedder
from penstock.server.overload.middleware import AccessRecord, RequestMiddleware
from penstock.server.polling.poll_hub import LongPolls
from penstock.server.polling.quota import PollQuota
from penstock.server.push_auth import PushAuth
from penstock.server.recognition import Recognizer
from penstock.server.responses import SharedResult
from penstock.server.routes import PageSite, Routes
from penstock.server.routing.endpoint import starlette_route

SPARE_THREADS = 2
"""Threads reserved for the two group commits of worker calls, so that they never wait for a thread.
"""
PUSH_TOKENS_WAITING_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The app with its shared components."""

    app: RequestMiddleware
    load_shedder: LoadShedder
    connections: ConnectionTable
    recognise: Recognizer
    asgi: Starlette
    waiting: LongPolls
    site: PageSite | None

    def drain(self) -> None:
        """End waiting requests, because the server stops; thread-safe and idempotent."""
        self.asgi.state.is_draining = True
        self.waiting.is_stopping = True
        self.waiting.release()
        if self.site is not None:
            self.site.release()


def build(
    client: Client,
    routes: Routes,
    *,
    options: ApiOptions,
    clock: Clock,
    events: Events,
    trigger: Trigger,
    receiving: PushAuth | None = None,
    metrics: Metrics | None = None,
) -> Api:
    """Build the API over a client; `receiving` configures incoming pushes.

    metrics: the metrics that `/metrics` serves; by default, events counted from now on.
    """
    waiting = LongPolls(lambda channel: client.store.listen([channel]))
    connections = ConnectionTable(connections_max(options.connections))
    resumed, site = max(1, options.threads - 1), _site(routes, client, clock)
    meters = own_metrics(client, clock, events) if metrics is None else metrics
    meters.follow(lambda: waiting.count, connections)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threads = anyio.to_thread.current_default_thread_limiter()
        threads.total_tokens = options.threads + resumed + SPARE_THREADS
        await anyio.to_thread.run_sync(_load_secrets, app, client)
        yield
        waiting.close()

    app = _starlette(routes, lifespan, [] if site is None else site.routes)
    _state(app, client, options, clock=clock, trigger=trigger, waiting=waiting, meters=meters)
    app.state.receiving = receiving or PushAuth()
    app.state.site = site
    app.state.push_tokens = BoundedThreads(1, PUSH_TOKENS_WAITING_MAX)
    app.state.events = events
    app.state.poll_quota = PollQuota(connections.most)
    _shared_results(app, routes, client, clock)

    record = _recorder(meters, events)
    queue = AdmissionQueue(concurrency=options.threads, most=options.inflight, clock=clock)
    app.state.admission_queue = queue
    guard = RequestMiddleware(
        app,
        clock=clock,
        admissions=Admissions(queue, resumed_max=resumed),
        fast_path_max=options.worker_inflight,
        body_max=options.body_max,
        record=record,
    )
    keyring: KeyCache = app.state.keyring
    guard.fast_path = routes.fastpath(keyring, client)
    recognise = app.state.recognise = Recognizer(keyring, options.scheduler_token, site)
    return Api(
        app=guard,
        load_shedder=LoadShedder(queue, record, recognise.caller, recognise.is_worker),
        connections=connections,
        recognise=recognise,
        asgi=app,
        waiting=waiting,
        site=site,
    )


def _site(routes: Routes, client: Client, clock: Clock) -> PageSite | None:
    return None if routes.pages is None else routes.pages(client, clock)


def _recorder(meters: Metrics, events: Events) -> Callable[[AccessRecord], None]:
    """Return a callback that counts a request and emits its event."""

    def record(access: AccessRecord) -> None:
        meters.record(access)
        if events.wants(Served):
            events.emit(
                Served(
                    request_id=access.request_id,
                    method=access.method,
                    path=access.path,
                    status=access.status,
                    seconds=round(access.seconds, 6),
                    key=access.key,
                    customer_id=access.customer,
                    route=access.route,
                    traceparent=None if access.trace is None else access.trace.header,
                )
            )

    return record


def _shared_results(app: Starlette, routes: Routes, client: Client, clock: Clock) -> None:
    """Set the results of routes without a key, each computed by one thread for all requests."""
    app.state.document = SharedResult(
        lambda: msgspec.json.encode(describe(routes)), clock, seconds=math.inf
    )
    app.state.public_keys = SharedResult(
        lambda: msgspec.json.encode({"keys": app.state.receiving.keys()}), clock
    )
    # Readiness needs no key: a query per request would let anyone load the database.
    app.state.ping = SharedResult(client.views.ping, clock, seconds=0.25)
    app.state.write_check = SharedResult(client.views.check_write, clock, seconds=1.0)


def _load_secrets(app: Starlette, client: Client) -> None:
    """Load the secrets that all servers share: of cursors, and of the credentials of runs."""
    app.state.cursor_secret = client.keys.server_secret("cursor").encode()
    app.state.keyring.accept_grants(client.keys.server_secret(RUN_SECRET).encode())


def _starlette(
    routes: Routes, lifespan: Callable[[Starlette], Any], pages: Sequence[StarletteRoute]
) -> Starlette:
    """Return an app with the routes and the error handlers."""
    served = [
        *(plain.starlette_route() for plain in routes.plain),
        *(starlette_route(route) for route in routes.all),
        *pages,
    ]
    app = Starlette(routes=served, lifespan=lifespan, exception_handlers=problems.HANDLERS)
    app.router.redirect_slashes = False
    return app


def _state(
    app: Starlette,
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
    app.state.is_draining = False
