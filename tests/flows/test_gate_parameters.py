"""Gates and sources of items receive the parameters that the runs receive, on every path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock import Pipeline, day, same_day
from penstock.client import Client
from penstock.core.clock import HOUR, MINUTE
from penstock.db.store import Store
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.items.sources import ItemRequest
from penstock.flows.ladder.ladder import SelfHeal
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.pipelines.parameters import run_parameters
from penstock.runs.records import Submission
from penstock.schedules.records import ConfigChange
from penstock.schedules.rows import ConfigRow
from penstock.schedules.scheduler import Scheduler
from penstock.testing.clock import VirtualClock
from tests.kits.configs import cfg, create_config
from tests.kits.flows import Stage, work

PARTITION = "2025-11-16"
SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "default": "none"},
        "size": {"type": "integer", "default": 3},
    },
}
EU = {"region": "eu", "size": 3}
SHOPS = "SELECT shop FROM shops WHERE customer = :customer AND region = :region"


def shop() -> Pipeline:
    """Return a pipeline with a gate, and one run per item of a query."""
    made = Pipeline(
        "shop",
        partition=day("day", repeats=True),
        warehouse="w",
        parameters=SCHEMA,
        customer_column="customer",
    )
    load = made.phase("load")
    need = same_day("t.rows", where="region = :region")
    load.processor("load", needs=[need])(work)
    sales = made.phase("sales")
    sales.processor("each_shop", each=SHOPS)(work)
    return made


class Scene:
    """A store with an orchestrator that records what it is asked for."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.probes: list[ProbeRequest] = []
        self.queries: list[ItemRequest] = []
        self.rows = 1
        self.client = Client(store, actor="tester", probe=self.probe)
        self.client.register([shop()])
        self.orchestrator = Orchestrator(store, self.probe, query=self.query, holder="o1")

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Record a request; all tables have the same number of rows."""
        self.probes.append(request)
        now = self.clock.now()
        return [Observation(key=d.key, looked_at=now, rows=self.rows) for d in request.dependencies]

    def query(self, request: ItemRequest) -> Sequence[Any]:
        """Record a request for items."""
        self.queries.append(request)
        return ["a"]

    def config(self, customer: str = "acme", **fields: Any) -> ConfigRow:
        """Create an hourly config for the region eu."""
        given = {"pipeline_template": "shop", "schedule_cron": "0 * * * *", "overlap": "allow"}
        return create_config(
            self.client, customer, {**given, "parameters": {"region": "eu"}, **fields}
        )

    def tick(self) -> None:
        """Let an hour pass, then schedule and orchestrate."""
        self.clock.advance(HOUR)
        Scheduler(self.store, clock=self.clock).run_once()
        self.step()

    def step(self) -> None:
        """Let the orchestrator work until nothing is due."""
        for _ in range(3):
            self.orchestrator.run_once()

    def asked(self) -> list[dict[str, Any]]:
        """Return the parameters of the probes since the last call."""
        found = [dict(one.parameters) for one in self.probes]
        self.probes.clear()
        return found


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    """The scene on the store under test."""
    return Scene(store, clock)


def test_a_scheduled_flow_binds_the_parameters_of_its_config(scene: Scene) -> None:
    """Its gates and the source of its items receive them over the defaults of the schema."""
    scene.config()
    scene.tick()
    assert scene.asked() == [EU]
    assert [dict(one.parameters) for one in scene.queries] == [EU]


def test_a_start_and_a_trigger_of_a_config_bind_its_parameters(scene: Scene) -> None:
    """A start by hand, and a trigger that belongs to the only active config."""
    config = scene.config()
    scene.client.configs.start(cfg(config))
    scene.step()
    assert scene.asked() == [EU]
    scene.client.flows.trigger(FlowRequest(pipeline="shop", customer="acme", partition=PARTITION))
    scene.step()
    assert scene.asked() == [EU]


def test_a_flow_binds_its_own_parameters_and_the_defaults(scene: Scene) -> None:
    """A flow's own parameters replace those of its config; without both the defaults remain."""
    scene.config()
    wanted = FlowRequest(
        pipeline="shop", customer="acme", partition=PARTITION, parameters={"size": 9}
    )
    scene.client.flows.trigger(wanted)
    scene.client.flows.trigger(FlowRequest(pipeline="shop", customer="bravo", partition=PARTITION))
    scene.step()
    asked = {one.customer: dict(one.parameters) for one in scene.probes}
    assert asked == {
        "acme": {"region": "none", "size": 9},
        "bravo": {"region": "none", "size": 3},
    }


def test_customers_bind_their_own_parameters(scene: Scene) -> None:
    """Flows of several customers that are evaluated together do not share parameters."""
    scene.config()
    scene.config("bravo", parameters={"region": "us"})
    scene.tick()
    asked = {one.customer: one.parameters["region"] for one in scene.probes}
    assert asked == {"acme": "eu", "bravo": "us"}


def test_a_waiting_gate_binds_the_current_parameters(scene: Scene) -> None:
    """Its flow has started no run yet, and the run will read the config's parameters as well."""
    scene.rows = 0
    config = scene.config()
    scene.tick()
    assert scene.asked() == [EU]
    change = ConfigChange(parameters={"region": "us"})
    scene.client.configs.update(cfg(config), change)
    scene.clock.advance(5 * MINUTE)
    scene.step()
    assert scene.asked() == [{"region": "us", "size": 3}]


def test_self_heal_binds_the_parameters(scene: Scene) -> None:
    """The services beside the orchestrator probe with the same parameters."""
    scene.config()
    scene.clock.advance(HOUR)
    Scheduler(scene.store, clock=scene.clock).run_once()
    scene.clock.advance(3 * HOUR)
    SelfHeal(scene.store, scene.probe).run_once()
    assert scene.asked() == [EU]


def test_a_submitted_run_binds_its_parameters(scene: Scene) -> None:
    """Its own, over the defaults of the schema."""
    wanted = Submission(
        pipeline="shop", processor="load", partition=PARTITION, parameters={"region": "eu"}
    )
    scene.client.runs.submit(wanted)
    scene.step()
    assert scene.asked() == [EU]


def test_a_check_binds_the_parameters_of_the_flow_or_the_only_config(scene: Scene) -> None:
    """With a flow those of its runs, else those of the only active config, else the defaults."""
    gates = scene.client.gates
    gates.check("shop", "load", partition=PARTITION)
    assert scene.asked() == [{"region": "none", "size": 3}]
    first = scene.config()
    gates.check("shop", "load", partition=PARTITION, customer="acme")
    assert scene.asked() == [EU]
    second = scene.config(parameters={"region": "us"})
    gates.check("shop", "load", partition=PARTITION, customer="acme")
    assert scene.asked() == [{"region": "none", "size": 3}]
    for config, region in ((first, "eu"), (second, "us")):
        wanted = FlowRequest(
            pipeline="shop", customer="acme", partition=PARTITION, config=cfg(config), force=True
        )
        flow_id = scene.client.flows.trigger(wanted).flow.flow_id
        gates.check("shop", "load", flow_id=flow_id)
        assert scene.asked() == [{"region": region, "size": 3}]


def test_a_check_of_a_bound_caller_reads_only_its_own_config(scene: Scene) -> None:
    """The config of another customer is not visible."""
    scene.config()
    scene.config("bravo", parameters={"region": "us"})
    bound = scene.client.scoped("bravo")
    bound.gates.check("shop", "load", partition=PARTITION)
    assert [(one.customer, one.parameters["region"]) for one in scene.probes] == [("bravo", "us")]


def test_outputs_bind_the_parameters(store: Store, clock: VirtualClock) -> None:
    """The probe of what a phase produced is no exception."""
    output = same_day("t.made", where="region = :region")
    made = Pipeline(
        "makes", partition=day("day", repeats=True), warehouse="w", customer_column="customer"
    )
    make = made.phase("make")
    make.processor("make", produces=[output])(work)
    made.phase("after", after=make).processor("after")(work)
    stage = Stage(store, clock, made)
    stage.rows["t.made"] = 1
    given = {"pipeline_template": "makes", "schedule_cron": "0 * * * *"}
    create_config(stage.client, "acme", {**given, "parameters": {"region": "eu"}})
    clock.advance(HOUR)
    Scheduler(store, clock=clock).run_once()
    assert stage.complete() == 1
    stage.orchestrator.run_once()
    assert [dict(one.parameters) for one in stage.probes] == [{"region": "eu"}]


def test_parameters_of_a_run() -> None:
    """The given parameters come over the defaults, as a worker passes them."""
    assert run_parameters({"a": 1, "b": 2}, '{"b": 3}') == {"a": 1, "b": 3}
    assert run_parameters({"a": 1}, None) == {"a": 1}
