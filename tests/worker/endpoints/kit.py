"""HTTP processors against real endpoints on 127.0.0.1: a store, dispatchers, and the served API."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.access.secrets import Secrets
from penstock.audit.telemetry import Event, Events, RequestSent
from penstock.core.clock import SystemClock
from penstock.egress.http_client import HttpClient
from penstock.egress.policy import EgressRules
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.records import RunDetail, Submission
from penstock.worker.endpoints.dispatcher import Dispatcher, DispatcherOptions
from penstock.worker.endpoints.exchange import EndpointSender, Exchanger
from tests.kits.client_harness import Harness
from tests.kits.egress import ReceivedRequest, Receiver, ScriptedResponse, receiving
from tests.server.kit import Client, ServedApi

INSIDE = EgressRules(allow_http=True, allow_private=True)
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
WAIT = 20.0

Respond = Callable[[ReceivedRequest], ScriptedResponse]


def replying(status: int = 200, body: Any = None, **headers: str) -> ScriptedResponse:
    """Return a response with a JSON body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ScriptedResponse(status, named, b"" if body is None else json.dumps(body).encode())


class EndpointWorld:
    """One HTTP processor `scores/main/score` whose endpoint is a receiver in this process."""

    def __init__(self, harness: Harness, receiver: Receiver, **options: Any) -> None:
        self.harness = harness
        self.client = harness.client
        self.receiver = receiver
        self.events = Events()
        self.received: list[Event] = []
        self.events.subscribe(self.received.append)
        self.url = f"http://127.0.0.1:{receiver.port}/score"
        self.pipeline = Pipeline("scores")
        self.pipeline.phase("main").http(self.url, name="score", **options)
        self.client.register([self.pipeline])
        self.api: ServedApi | None = None
        self.dispatchers: list[Dispatcher] = []

    def submit(self, customer: str = "acme", **fields: Any) -> str:
        """Submit a run; return its id."""
        wanted = Submission(pipeline="scores", customer=customer, **fields)
        return self.client.runs.submit(wanted).run_id

    def dispatcher(
        self, rules: EgressRules = INSIDE, send: EndpointSender | None = None, **options: Any
    ) -> Dispatcher:
        """Return a dispatcher; without threads it sends in the thread of the test."""
        url = "" if self.api is None else f"http://{self.api.server.host}:{self.api.server.port}"
        exchanger = Exchanger(
            send or HttpClient(SystemClock(), rules, resolve=lambda *_: ["127.0.0.1"]).send,
            bearer=lambda audience, email, customer: f"token:{audience}:{email}:{customer}",
            secrets=Secrets({"hook": SECRET}),
            clock=self.harness.clock,
        )
        made = Dispatcher(
            self.harness.store,
            exchanger,
            clock=self.harness.clock,
            events=self.events,
            options=DispatcherOptions(**{"threads": 0, "callback_url": url, **options}),
        )
        self.dispatchers.append(made)
        return made

    def send_all(self, dispatcher: Dispatcher | None = None) -> int:
        """Step a dispatcher until nothing is started; return how many runs were sent."""
        stepped, sent = dispatcher or self.dispatcher(), 0
        while True:
            self.harness.admitter.run_once()
            begun = stepped.run_once().started
            sent += begun
            if not begun:
                return sent

    def detail(self, run_id: str) -> RunDetail:
        """Return a run as `runs show` does."""
        return self.client.runs.detail(run_id)

    def state(self, run_id: str) -> str:
        """Return the state of a run."""
        return str(self.detail(run_id).run.state)

    def chain(self, run_id: str) -> list[str]:
        """Return the states of all attempts of a run, oldest first."""
        root = self.detail(run_id).run
        found = self.client.runs.list(pipeline="scores", limit=100).items
        same = [run for run in found if (run.root_run_id or run.run_id) == root.run_id]
        return [str(run.state) for run in sorted(same, key=lambda run: run.attempt)]

    def later(self, us: int) -> None:
        """Advance the clock, then sweep and admit."""
        self.harness.clock.advance(us)
        self.harness.sweeper.run_once()
        self.harness.admitter.run_once()

    @property
    def sent(self) -> list[RequestSent]:
        """Requests that were sent, as the dispatchers reported them."""
        return [event for event in self.received if isinstance(event, RequestSent)]

    def call(self, url: str, token: str, body: Any = None) -> Any:
        """Call back as an endpoint does; return the reply."""
        assert self.api is not None
        path = url.partition("/api/v1")[2]
        return Client(self.api.server.host, self.api.server.port, token).post(path, body or {})


@contextmanager
def endpoint(
    harness: Harness, respond: Respond | None = None, *, served: bool = False, **options: Any
) -> Iterator[EndpointWorld]:
    """Yield a world with an endpoint that responds; `served`: and with the API for callbacks."""
    with receiving(respond or (lambda _: replying())) as receiver:
        world = EndpointWorld(harness, receiver, **options)
        if served:
            world.api = ServedApi(harness, clock=harness.clock)
        try:
            yield world
        finally:
            for one in world.dispatchers:
                one.drain(WAIT)
            if world.api is not None:
                world.api.stop()


class Gate:
    """An endpoint that waits until the test lets it continue."""

    def __init__(self, status: int = 200) -> None:
        self.open = threading.Event()
        self.status = status

    def __call__(self, _: ReceivedRequest) -> ScriptedResponse:
        assert self.open.wait(WAIT)
        return replying(self.status)
