"""A customer with every kind of resource, and one valid call of every route for it.

`CALLS` has an entry for each route of the access table; a route without one fails the tests that
iterate over the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.access.api_keys import Role
from penstock.core.clock import MINUTE, to_datetime
from penstock.core.ids import encode
from penstock.runs.external.client.work import Claimed, ExternalWorker, FailureReport
from penstock.runs.records import Submission
from penstock.schedules.records import Config, ConfigChange
from penstock.usage.records import NewBudget
from tests.kits.client_harness import Harness
from tests.server.alert_scene import ALERT_CALLS, AlertThings, alert_things
from tests.server.bus_scene import BUS_CALLS, BusThings, bus_things
from tests.server.flow_scene import FLOW_CALLS, FlowThings, flow_things

Call = tuple[str, Any]
"""(path under /api/v1, body)."""

HELD = ("claimed", "running", "completes", "completes_too", "fails", "stops", "asked", "waits")


@dataclass(frozen=True, slots=True)
class Scene:
    """Ids of one customer's resources; `runs` and `tokens` are keyed by the run's purpose."""

    customer: str
    config: str
    failing: str
    runs: Mapping[str, str]
    tokens: Mapping[str, int]
    key: str
    spare_key: str
    flows: FlowThings
    bus: BusThings
    alerts: AlertThings

    def held(self, name: str, **more: Any) -> dict[str, Any]:
        """Return the body of a call for a claimed run."""
        return {"fencing_token": self.tokens[name], **more}


def scene(harness: Harness, customer: str) -> Scene:
    """Create configs, runs in every state, a dead letter, an alert, a pause and keys."""
    client = harness.client
    config = client.configs.create(
        customer, Config(pipeline="nightly", cron="0 * * * *", provider="GCP")
    )
    failing = client.configs.create(
        customer, Config(pipeline="outside", interval=timedelta(minutes=60))
    )
    client.configs.update(config.config_id, ConfigChange(priority=7), reason="more")
    for _ in range(3):
        client.configs.start(failing.config_id, trigger_source="scheduler")
        _fail_for_good(harness, customer)
    ended = [_fail_for_good(harness, customer) for _ in range(3) if _submit(harness, customer)]
    _submit(harness, customer, len(HELD))
    worker = ExternalWorker(f"w-{customer}", "other-key")
    held = dict(zip(HELD, client.work.claim(worker, len(HELD), customer=customer), strict=True))
    for name in HELD[1:]:
        client.work.start(held[name].run.run_id, worker)
    client.runs.cancel(encode("run", held["stops"].run.run_id))
    ready = _submit(harness, customer, 2)
    at = to_datetime(harness.clock.now() + MINUTE)
    later = client.runs.submit(Submission(pipeline="outside", customer=customer, at=at))
    key = client.keys.create(f"for-{customer}", Role.VIEWER, customer=customer)
    spare = client.keys.create(f"spare-{customer}", Role.VIEWER, customer=customer)
    client.pauses.pause("config", config.config_id, reason="a rest")
    client.budgets.set(NewBudget(scope="customer", subject=customer, amount=100))
    numbers = {name: one.run.run_id for name, one in held.items()}
    numbers |= {"dead": ended[0].run.run_id, "ended": ended[1].run.run_id}
    numbers |= {"again": ended[2].run.run_id}
    runs = {name: encode("run", number) for name, number in numbers.items()}
    runs |= {"ready": ready[0], "other": ready[1], "later": later.run_id}
    return Scene(
        customer=customer,
        config=config.config_id,
        failing=failing.config_id,
        runs=runs,
        tokens={name: one.run.token for name, one in held.items()},
        key=key.info.key_id,
        spare_key=spare.info.key_id,
        flows=flow_things(harness, customer),
        bus=bus_things(harness, customer),
        alerts=alert_things(harness, customer),
    )


def _submit(harness: Harness, customer: str, n: int = 1) -> list[str]:
    wanted = Submission(pipeline="outside", customer=customer, parameters={"whose": customer})
    return harness.client.runs.submit_many([wanted] * n)


def _fail_for_good(harness: Harness, customer: str) -> Claimed:
    """Fail the customer's next run permanently."""
    worker = ExternalWorker(f"w-{customer}", "other-key")
    (one,) = harness.client.work.claim(worker, customer=customer)
    harness.client.work.start(one.run.run_id, worker)
    failure = FailureReport(error_type="VALIDATION_ERROR", error_details={"whose": customer})
    assert harness.client.work.fail(one.run.run_id, worker, failure).is_dead
    return one


NIGHTLY = {"pipeline_template": "nightly", "schedule_cron": "0 2 * * *"}


def _ndjson(s: Scene) -> Any:
    return [{**NIGHTLY, "customer_id": s.customer}]


CALLS: Mapping[str, Callable[[Scene], Call]] = {
    "POST /api/v1/scheduler/trigger": lambda _: ("/scheduler/trigger", {"batch_size": 10}),
    "POST /api/v1/scheduler/claim-runs": lambda _: (
        "/scheduler/claim-runs",
        {"worker_id": "w9", "max_claims": 1},
    ),
    "POST /api/v1/customers/{customer_id}/pipeline-configs": lambda s: (
        f"/customers/{s.customer}/pipeline-configs",
        NIGHTLY,
    ),
    "GET /api/v1/customers/{customer_id}/pipeline-configs": lambda s: (
        f"/customers/{s.customer}/pipeline-configs",
        None,
    ),
    "POST /api/v1/pipeline-configs/bulk": lambda s: ("/pipeline-configs/bulk", _ndjson(s)),
    "GET /api/v1/pipeline-configs": lambda _: ("/pipeline-configs", None),
    "GET /api/v1/pipeline-configs/{config_id}": lambda s: (f"/pipeline-configs/{s.config}", None),
    "PATCH /api/v1/pipeline-configs/{config_id}": lambda s: (
        f"/pipeline-configs/{s.config}",
        {"priority": 3, "reason": "less"},
    ),
    "DELETE /api/v1/pipeline-configs/{config_id}": lambda s: (
        f"/pipeline-configs/{s.config}",
        None,
    ),
    "POST /api/v1/pipeline-configs/{config_id}/start": lambda s: (
        f"/pipeline-configs/{s.failing}/start",
        {},
    ),
    "GET /api/v1/pipeline-configs/{config_id}/why": lambda s: (
        f"/pipeline-configs/{s.config}/why",
        None,
    ),
    "GET /api/v1/pipeline-configs/{config_id}/preview": lambda s: (
        f"/pipeline-configs/{s.config}/preview",
        None,
    ),
    "GET /api/v1/pipeline-configs/{config_id}/audit": lambda s: (
        f"/pipeline-configs/{s.config}/audit",
        None,
    ),
    "GET /api/v1/pipeline-configs/{config_id}/occurrences": lambda s: (
        f"/pipeline-configs/{s.config}/occurrences",
        None,
    ),
    "POST /api/v1/schedules/preview": lambda _: (
        "/schedules/preview",
        {"schedule_cron": "0 2 * * *"},
    ),
    "POST /api/v1/customers/{customer_id}/pipeline-runs": lambda s: (
        f"/customers/{s.customer}/pipeline-runs",
        {"pipeline_template": "outside"},
    ),
    "GET /api/v1/customers/{customer_id}/pipeline-runs": lambda s: (
        f"/customers/{s.customer}/pipeline-runs",
        None,
    ),
    "GET /api/v1/customers/{customer_id}/health": lambda s: (
        f"/customers/{s.customer}/health",
        None,
    ),
    "GET /api/v1/customers/{customer_id}/metrics": lambda s: (
        f"/customers/{s.customer}/metrics",
        None,
    ),
    "GET /api/v1/customers/{customer_id}/audit": lambda s: (f"/customers/{s.customer}/audit", None),
    "GET /api/v1/pipeline-runs": lambda _: ("/pipeline-runs", None),
    "GET /api/v1/pipeline-runs/counts": lambda _: ("/pipeline-runs/counts", None),
    "GET /api/v1/pipeline-runs/{run_id}": lambda s: (f"/pipeline-runs/{s.runs['running']}", None),
    "GET /api/v1/pipeline-runs/{run_id}/logs": lambda s: (
        f"/pipeline-runs/{s.runs['running']}/logs",
        None,
    ),
    "GET /api/v1/pipeline-runs/{run_id}/upstream": lambda s: (
        f"/pipeline-runs/{s.runs['running']}/upstream",
        None,
    ),
    "GET /api/v1/pipeline-runs/{run_id}/state": lambda s: (
        f"/pipeline-runs/{s.runs['running']}/state",
        None,
    ),
    "POST /api/v1/pipeline-runs/{run_id}/log": lambda s: (
        f"/pipeline-runs/{s.runs['running']}/log",
        s.held("running", entries=[{"message": "half done"}]),
    ),
    "POST /api/v1/pipeline-runs/{run_id}/state": lambda s: (
        f"/pipeline-runs/{s.runs['running']}/state",
        s.held("running", state={"page": 7}),
    ),
    "POST /api/v1/pipeline-runs/{run_id}/wait": lambda s: (
        f"/pipeline-runs/{s.runs['waits']}/wait",
        s.held("waits", trigger={"pipeline_template": "pair", "partition": "q"}),
    ),
    "POST /api/v1/pipeline-runs/heartbeat": lambda s: (
        "/pipeline-runs/heartbeat",
        {"heartbeats": [{"run_id": s.runs["running"], **s.held("running")}]},
    ),
    "POST /api/v1/pipeline-runs/complete": lambda s: (
        "/pipeline-runs/complete",
        {"completions": [{"run_id": s.runs["completes_too"], **s.held("completes_too")}]},
    ),
    "POST /api/v1/pipeline-runs/{run_id}/claim": lambda s: (
        f"/pipeline-runs/{s.runs['other']}/claim",
        {"worker_id": "w9"},
    ),
    "POST /api/v1/pipeline-runs/{run_id}/start": lambda s: (
        f"/pipeline-runs/{s.runs['claimed']}/start",
        s.held("claimed"),
    ),
    "POST /api/v1/pipeline-runs/{run_id}/heartbeat": lambda s: (
        f"/pipeline-runs/{s.runs['running']}/heartbeat",
        s.held("running", progress_percentage=45.5),
    ),
    "POST /api/v1/pipeline-runs/{run_id}/complete": lambda s: (
        f"/pipeline-runs/{s.runs['completes']}/complete",
        s.held("completes", status="SUCCESS"),
    ),
    "POST /api/v1/pipeline-runs/{run_id}/fail": lambda s: (
        f"/pipeline-runs/{s.runs['fails']}/fail",
        s.held("fails", error_type="TRANSIENT_NETWORK"),
    ),
    "POST /api/v1/pipeline-runs/{run_id}/cancelled": lambda s: (
        f"/pipeline-runs/{s.runs['stops']}/cancelled",
        s.held("stops"),
    ),
    "POST /api/v1/pipeline-runs/{run_id}/cancel": lambda s: (
        f"/pipeline-runs/{s.runs['asked']}/cancel",
        {"reason": "enough"},
    ),
    "POST /api/v1/pipeline-runs/{run_id}/retry": lambda s: (
        f"/pipeline-runs/{s.runs['ended']}/retry",
        None,
    ),
    "GET /api/v1/dead-letters": lambda _: ("/dead-letters", None),
    "GET /api/v1/dead-letters/groups": lambda _: ("/dead-letters/groups", None),
    "POST /api/v1/dead-letters/replay": lambda s: (
        "/dead-letters/replay",
        {"customer_id": s.customer, "error_type": "NO_SUCH_ERROR"},
    ),
    "POST /api/v1/dead-letters/discard": lambda s: (
        "/dead-letters/discard",
        {"customer_id": s.customer, "error_type": "NO_SUCH_ERROR", "reason": "known"},
    ),
    "GET /api/v1/dead-letters/{dead_letter_id}": lambda s: (
        f"/dead-letters/{s.runs['dead']}",
        None,
    ),
    "POST /api/v1/dead-letters/{dead_letter_id}/replay": lambda s: (
        f"/dead-letters/{s.runs['again']}/replay",
        None,
    ),
    "POST /api/v1/dead-letters/{dead_letter_id}/discard": lambda s: (
        f"/dead-letters/{s.runs['dead']}/discard",
        {"reason": "known"},
    ),
    "GET /api/v1/dashboard/pipeline-status": lambda _: ("/dashboard/pipeline-status", None),
    "GET /api/v1/sessions": lambda _: ("/sessions", None),
    "GET /api/v1/system": lambda _: ("/system", None),
    "GET /api/v1/pipelines": lambda _: ("/pipelines", None),
    "GET /api/v1/pipelines/{pipeline}": lambda _: ("/pipelines/nightly", None),
    "GET /api/v1/exports/{kind}": lambda _: ("/exports/runs", None),
    "GET /api/v1/seals": lambda _: ("/seals", None),
    "GET /api/v1/dependencies/health": lambda _: ("/dependencies/health?days=3", None),
    "GET /api/v1/reviews/daily": lambda _: ("/reviews/daily", None),
    "GET /api/v1/reviews/weekly": lambda _: ("/reviews/weekly", None),
    "GET /api/v1/trends": lambda _: ("/trends?days=3", None),
    "GET /api/v1/series/runs": lambda _: ("/series/runs?bucket=1h", None),
    "GET /api/v1/analytics/acknowledgments": lambda _: ("/analytics/acknowledgments", None),
    "GET /api/v1/analytics/validation-failures": lambda _: (
        "/analytics/validation-failures",
        None,
    ),
    "GET /api/v1/analytics/overrides": lambda _: ("/analytics/overrides", None),
    "GET /api/v1/analytics/end-to-end": lambda _: ("/analytics/end-to-end", None),
    "GET /api/v1/audit-sink": lambda _: ("/audit-sink?sink=parquet:/tmp/x", None),
    "GET /api/v1/dashboard/customer-counts": lambda _: ("/dashboard/customer-counts", None),
    "GET /api/v1/dashboard/longest-running": lambda _: ("/dashboard/longest-running", None),
    "GET /api/v1/dashboard/today": lambda s: (f"/dashboard/today?customer_id={s.customer}", None),
    "GET /api/v1/dashboard/last-failures": lambda _: ("/dashboard/last-failures", None),
    "GET /api/v1/journal": lambda _: ("/journal?kind=run", None),
    "GET /api/v1/detections": lambda _: ("/detections", None),
    "GET /api/v1/freshness": lambda _: ("/freshness", None),
    "GET /api/v1/slos": lambda s: (f"/slos?customer_id={s.customer}", None),
    "GET /api/v1/budgets": lambda _: ("/budgets", None),
    "POST /api/v1/budgets": lambda s: (
        "/budgets",
        {"scope": "customer", "subject": s.customer, "amount": 5, "period": "day"},
    ),
    "POST /api/v1/budgets/{scope}/{subject}/lift": lambda s: (
        f"/budgets/customer/{s.customer}/lift",
        {"reason": "a test"},
    ),
    "DELETE /api/v1/budgets/{scope}/{subject}": lambda s: (f"/budgets/customer/{s.customer}", None),
    "GET /api/v1/anomalies": lambda _: ("/anomalies", None),
    "GET /api/v1/pools": lambda _: ("/pools", None),
    "GET /api/v1/pools/{pool}/desired-workers": lambda _: ("/pools/default/desired-workers", None),
    "GET /api/v1/slos/breaches": lambda s: (f"/slos/breaches?customer_id={s.customer}", None),
    "GET /api/v1/verification": lambda _: ("/verification", None),
    "POST /api/v1/seals/compare": lambda _: (
        "/seals/compare",
        {"heads": [{"block": 1, "head": "0" * 64}]},
    ),
    "GET /api/v1/schedules/load": lambda _: ("/schedules/load?hours=2", None),
    "POST /api/v1/schedules/jitter": lambda _: ("/schedules/jitter", {"above": 1000}),
    "GET /api/v1/pauses": lambda _: ("/pauses", None),
    "POST /api/v1/pauses": lambda s: ("/pauses", {"scope": "customer", "subject": s.customer}),
    "POST /api/v1/pauses/resume": lambda s: (
        "/pauses/resume",
        {"scope": "config", "subject": s.config},
    ),
    "GET /api/v1/customers": lambda _: (
        "/customers?q=a&health=well&pipeline_template=nightly&provider=GCP&sort=trouble",
        None,
    ),
    "GET /api/v1/customers/{customer_id}": lambda s: (f"/customers/{s.customer}", None),
    "PATCH /api/v1/customers/{customer_id}": lambda s: (
        f"/customers/{s.customer}",
        {"weight": 2, "concurrency": 50},
    ),
    "GET /api/v1/keys": lambda _: ("/keys", None),
    "POST /api/v1/keys": lambda _: ("/keys", {"name": "new", "role": "viewer"}),
    "POST /api/v1/keys/{key_id}/rotate": lambda s: (f"/keys/{s.key}/rotate", {"overlap": "1h"}),
    "POST /api/v1/keys/{key_id}/revoke": lambda s: (f"/keys/{s.spare_key}/revoke", None),
    "GET /metrics": lambda _: ("/metrics", None),
    **{
        name: lambda s, call=call: call(s.flows)  # type: ignore[misc]
        for name, call in FLOW_CALLS.items()
    },
    **{
        name: lambda s, call=call: call(s.alerts)  # type: ignore[misc]
        for name, call in ALERT_CALLS.items()
    },
    **{
        name: lambda s, call=call: call(s.bus)  # type: ignore[misc]
        for name, call in BUS_CALLS.items()
    },
}


def method_of(route: str) -> str:
    """Return the method of a route in the access table."""
    return route.partition(" ")[0]
