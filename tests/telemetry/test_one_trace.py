"""A flow with a fan-out, an HTTP processor and a consumer's message is one trace.

Everything is real: the services over each engine, the endpoint and the consumer over HTTP, the
exporters of OpenTelemetry, and a collector that decodes what they send.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from penstock.assembly.endpoints import build_dispatcher
from penstock.assembly.process import build_services
from penstock.assembly.settings import Settings, load
from penstock.assembly.telemetry import process_telemetry
from penstock.audit.telemetry import Events
from penstock.bus.records import PushSettings, Subscription, Topic
from penstock.client import Client
from penstock.consumer import Consumer, ConsumerOptions, Upsert
from penstock.core.clock import SystemClock
from penstock.core.tracing.trace_context import CURRENT_TRACE, parse_traceparent
from penstock.db.store import Store
from penstock.flows.records import FlowRequest
from penstock.pipelines.declare.each import upstream
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.admitter import Admitter
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore
from tests.conftest import OpenStore
from tests.kits.egress import ReceivedRequest, ScriptedResponse, receiving
from tests.telemetry.kit import Collector, Span, collecting

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def orders(url: str) -> Pipeline:
    """Three items, an HTTP processor, and a processor that publishes."""
    made = Pipeline("orders")
    listing = made.phase("listing")
    each = made.phase("each", after=listing)
    score = made.phase("score", after=each)
    announce = made.phase("announce", after=score)

    @listing.processor
    def list_orders(_: Any) -> list[str]:
        return ["a", "b", "c"]

    @each.processor(each=upstream("list_orders"))
    def check_order(run: Any) -> None:
        run.records += 1

    score.http(url, name="rate")

    @announce.processor
    def publish(run: Any) -> None:
        run.publish("orders.done", {"partition": run.partition})

    return made


@contextlib.contextmanager
def consuming(collector: Collector) -> Iterator[tuple[str, list[str]]]:
    """Serve a consumer over HTTP; yield its URL and the traceparents that its handler saw."""
    seen: list[str] = []
    options = ConsumerOptions(
        telemetry={"otlp_endpoint": collector.url, "service_name": "reader"},
        log=lambda _: None,
    )
    app = Consumer("reader", sink="sqlite::memory:", options=options)

    @app.on()
    def handle(message: Any) -> Upsert:
        seen.append(message.traceparent)
        return Upsert(path=f"done/{message.id}", fields={"partition": message.json["partition"]})

    config = uvicorn.Config(app.asgi(), port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/pubsub/push", seen
    finally:
        server.should_exit = True
        thread.join(60)


class World:
    """One process of Penstock, stepped by the test."""

    def __init__(self, store: Store, settings: Settings, pipeline: Pipeline) -> None:
        clock = SystemClock()
        self.events = Events()
        store.events = self.events
        self.client = Client(store)
        self.client.register([pipeline])
        self.services = [
            one.service
            for one in build_services(
                store,
                settings,
                self.events,
                jitter=random.Random(7).random,
                clock=clock,
                pipelines=[pipeline],
            )
            if one.service.name in ("orchestrator", "outbox-publisher", "pusher")
        ]
        self.services.append(build_dispatcher(store, settings, self.events, is_inline=True))
        self.worker = WorkerCore(
            store, [pipeline], WorkerOptions(), clock=clock, jitter=lambda: 0.5, events=self.events
        )
        self.worker.open()
        self.admitter = Admitter(store)

    def run(self, flow_id: str, until: Any) -> None:
        """Step everything until a condition holds."""
        for _ in range(60):
            for service in self.services:
                service.run_once()
            self.admitter.run_once()
            self.worker.run_once()
            if self.client.flows.get(flow_id).flow.state != "OPEN" and until():
                return
        raise AssertionError(self.client.flows.get(flow_id))


def triggered(client: Client) -> str:
    """Trigger a flow as a request with the caller's context does; return its id."""
    context = CURRENT_TRACE.set(parse_traceparent(CALLER))
    try:
        wanted = FlowRequest(pipeline="orders", customer="acme", partition="2026-01-01")
        return client.flows.trigger(wanted).flow.flow_id
    finally:
        CURRENT_TRACE.reset(context)


def by_name(spans: list[Span], start: str) -> list[Span]:
    return [span for span in spans if span.name.startswith(start)]


def test_a_flow_is_one_trace(open_store: OpenStore) -> None:
    """All spans share the trace of the caller, and each has the right parent."""
    bodies: list[dict[str, Any]] = []
    headers: list[Any] = []

    def respond(request: ReceivedRequest) -> ScriptedResponse:
        bodies.append(json.loads(request.body))
        headers.append(request.headers)
        return ScriptedResponse(200, {}, b'{"status": "SUCCESS"}')

    with collecting() as collector, receiving(respond) as endpoint:
        store = open_store(clock=None)
        settings = load(
            {},
            overrides={
                "telemetry": {"otlp_endpoint": collector.url, "logs": True},
                "egress_http": "allowed",
                "egress_private": "allowed",
            },
        )
        pipeline = orders(f"http://127.0.0.1:{endpoint.port}/rate")
        world = World(store, settings, pipeline)
        client, (trace_id, caller) = world.client, CALLER.split("-")[1:3]
        client.topics.create(Topic(name="orders.done"), customer="acme")
        with (
            consuming(collector) as (url, seen),
            process_telemetry(client, settings, world.events, [pipeline], has_api=False),
        ):
            client.subscriptions.declare(
                Subscription(
                    name="reader",
                    topic="orders.done",
                    kind="push",
                    push=PushSettings(endpoint=url),
                ),
                customer="acme",
            )
            flow_id = triggered(client)
            world.run(flow_id, lambda: bool(seen))
    spans = collector.spans
    assert {span.trace_id for span in spans} == {trace_id}
    assert len({span.span_id for span in spans}) == len(spans)
    (root,) = by_name(spans, "flow ")
    assert root.parent_id == caller
    phases = {span.name.split()[1]: span for span in by_name(spans, "phase ")}
    assert sorted(phases) == ["announce", "each", "listing", "score"]
    assert {span.parent_id for span in phases.values()} == {root.span_id}
    assert {span.parent_id for span in by_name(spans, "gate ")} == {root.span_id}
    items = by_name(spans, "run check_order")
    assert sorted(span.attributes["penstock.item"] for span in items) == ["a", "b", "c"]
    assert {span.parent_id for span in items} == {phases["each"].span_id}
    (rated,) = by_name(spans, "run rate")
    assert rated.parent_id == phases["score"].span_id
    (request,) = by_name(spans, "POST ")
    assert (request.parent_id, request.kind) == (rated.span_id, 3)
    assert headers[0]["traceparent"] == f"00-{trace_id}-{request.span_id}-01"
    (published,) = by_name(spans, "run publish")
    (push,) = by_name(spans, "push reader")
    assert push.parent_id == published.span_id
    (handled,) = by_name(spans, "process reader")
    assert (handled.parent_id, handled.kind) == (push.span_id, 5)
    assert handled.service == "reader"
    assert seen == [f"00-{trace_id}-{handled.span_id}-01"]
    assert not any(span.is_error for span in spans)
    assert {"penstock_run_ends_total", "penstock_flow_seconds"} <= {
        f"{name}_total" if name == "penstock_run_ends" else name for name in collector.metrics
    }
