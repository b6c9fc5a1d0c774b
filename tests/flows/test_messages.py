"""The messages that flows publish: completions, triggers, failed checks and changes of status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.bus.message import SubscriptionSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.client import Client
from penstock.core.ids import decode
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import Completeness, CompletionReport, FlowRequest
from penstock.pipelines.declare.needs import optional, same_day
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.external.client.work import ExternalWorker
from penstock.services.upkeep import OutboxPublisher
from tests.kits.client_harness import Harness

DAY = "2025-11-17"
TOPICS = {
    "done": "shop.raw.complete", "next": "shop.sums.trigger", "last": "shop.sums.complete",
    "checks": "penstock.dependency-check-failed", "status": "penstock.orchestration-status",
}  # fmt: skip


class Scene:
    """A pipeline of two phases; every topic that it publishes on is read."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.rows: dict[str, int] = {}
        self.client = Client(harness.store, actor="tester")
        shop = Pipeline("shop", partition="day", warehouse="w")
        raw = shop.phase("raw")
        raw.external("orders")
        raw.external("stock")
        sums = shop.phase("sums", after=raw)
        sums.external("daily", needs=[same_day("t.orders", expect=10), optional("t.extra")])
        self.client.register([shop])
        self.bus = EmbeddedBus(harness.store)
        self.bus.declare([], [SubscriptionSpec(name=n, topic=t) for n, t in TOPICS.items()])
        self.orchestrator = Orchestrator(harness.store, self.probe)

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return the rows that the test has set."""
        now = self.harness.clock.now()
        return [
            Observation(key=d.key, looked_at=now, rows=self.rows.get(d.table, 0))
            for d in request.dependencies
        ]

    def complete(self, processor: str, **fields: Any) -> None:
        """Report a completion and let the orchestrator act on it."""
        report = CompletionReport(
            pipeline="shop", processor=processor, partition=DAY, mode="daily", **fields
        )
        self.client.flows.complete(report)
        self.orchestrator.run_once()

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return the new messages of a subscription."""
        OutboxPublisher(self.harness.store).run_once()
        found = self.bus.pull(name)
        self.bus.ack(name, [one.ack_id for one in found])
        return [json.loads(one.data) for one in found]


@pytest.fixture
def scene(harness: Harness) -> Scene:
    """The scene on the store under test, with an open flow."""
    made = Scene(harness)
    request = FlowRequest(pipeline="shop", partition=DAY, mode="daily", correlation_id="cause")
    made.client.flows.trigger(request)
    return made


def test_completions_have_all_fields(scene: Scene) -> None:
    """One message per completion of a processor, also if it is reported twice."""
    for _ in range(2):
        scene.complete(
            "orders", execution_id="e1", records=7, entities={"shops": [1, 2]},
            completeness=Completeness(total_expected=8, quality_score=0.5),
        )  # fmt: skip
    (message,) = scene.read("done")
    assert message.pop("flow_id").startswith("flow_")
    assert message == {
        "customer_id": "default", "pipeline": "shop", "partition": DAY, "mode": "daily",
        "generation": 1, "correlation_id": "cause", "phase": "raw", "processor_name": "orders",
        "status": "success", "execution_id": "e1", "processing_mode": "daily",
        "trigger_source": "manual",
        "completeness": {
            "total_expected": 8, "total_processed": 7, "completeness_pct": 87.5,
            "quality_score": 0.5,
        },
        "dependencies_met": True, "dependency_checks": [],
        "entities_changed": {"shops": [1, 2]}, "entities_total": {"shops": 2},
        "everything_changed": None, "metadata": {},
    }  # fmt: skip


def test_many_entities_are_counted(scene: Scene) -> None:
    """A message lists at most 1,000; everything is a reason, and no report is null."""
    scene.complete("orders", entities={"shops": list(range(1_001))})
    scene.complete("stock", everything_changed="full reload")
    first, second = scene.read("done")
    assert (first["entities_changed"], first["entities_total"]) == (None, {"shops": 1_001})
    assert second["everything_changed"] == "raw.stock changed everything: full reload"
    scene.rows |= {"t.orders": 10, "t.extra": 1}
    scene.harness.clock.advance(seconds=400)
    scene.orchestrator.run_once()
    (trigger,) = scene.read("next")
    assert (trigger["entities_changed"], trigger["entities_total"]) == (None, {"shops": 1_001})
    assert trigger["everything_changed"] == "raw.stock changed everything: full reload"
    scene.complete("daily")
    (last,) = scene.read("last")
    assert (last["entities_changed"], last["everything_changed"]) == (None, None)


def test_a_run_has_its_id_as_execution_id(scene: Scene) -> None:
    """A processor that a run executed names the run."""
    (run,) = [one for one in scene.client.runs.list().items if one.processor == "orders"]
    number, worker = decode("run", run.run_id), ExternalWorker("w", "k")
    scene.client.work.claim_by_id(worker, number)
    scene.client.work.start(number, worker)
    scene.client.work.complete(number, worker)
    scene.orchestrator.run_once()
    (message,) = scene.read("done")
    assert (message["processor_name"], message["execution_id"]) == ("orders", run.run_id)


def test_a_failed_check_and_its_cure(scene: Scene) -> None:
    """The decision, the weakest table and its rows; a degraded start is announced as well."""
    scene.rows |= {"t.orders": 4}
    scene.complete("orders", entities={"shops": [1]})
    scene.complete("stock", entities={"shops": [1, 2]})
    (failed,) = scene.read("checks")
    assert failed["decision"] == "WAIT"
    assert failed["required_table"] == "t.extra"
    assert {
        "table": "t.orders", "required_rows": 10, "found_rows": 4, "status": "MISSING",
    } in failed["dependency_checks"]  # fmt: skip
    assert scene.read("next") == []
    scene.rows |= {"t.orders": 10}
    scene.harness.clock.advance(seconds=400)
    scene.orchestrator.run_once()
    (degraded,) = scene.read("checks")
    assert (degraded["decision"], degraded["required_table"]) == ("PROCEED_DEGRADED", "t.extra")
    assert (degraded["found_rows"], degraded["phase"]) == (0, "sums")
    (trigger,) = scene.read("next")
    assert trigger["entities_changed"] == {"shops": [1, 2]}
    assert (trigger["verdict"], trigger["missing"]) == ("PROCEED_DEGRADED", ["t.extra"])
    scene.complete("daily")
    (last,) = scene.read("last")
    assert (last["trigger_source"], last["dependencies_met"]) == ("orchestrator", False)
    assert {one["table"] for one in last["dependency_checks"]} == {"t.orders", "t.extra"}


def test_status_at_each_change(scene: Scene) -> None:
    """Every change of a phase's state is announced with completeness and quality, then the end."""
    scene.rows |= {"t.orders": 10, "t.extra": 1}
    scene.complete("orders", completeness=Completeness(quality_score=0.8))
    scene.complete("stock", completeness=Completeness(quality_score=1.0))
    scene.complete("daily")
    found = scene.read("status")
    assert all(one["timestamp"] and one["flow_id"] for one in found)
    assert [(one.get("phase"), one["status"]) for one in found] == [
        ("raw", "IN_PROGRESS"), ("raw", "COMPLETE"), ("sums", "IN_PROGRESS"),
        ("sums", "COMPLETE"), (None, "COMPLETE"),
    ]  # fmt: skip
    complete = next(
        one for one in found if one.get("phase") == "raw" and one["status"] == "COMPLETE"
    )
    assert (complete["completeness_pct"], complete["quality_score"]) == (100.0, 0.9)
