"""Flows of a customer for the tests that call every route: open, blocked, to be cancelled.

`daily` has two phases in a separate pool, so that no other test claims their runs. Its second phase
requires history that does not exist, which in mode backfill opens an intervention at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.clock import HOUR, to_datetime
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest, FlowTrigger
from penstock.pipelines.declare.needs import historical
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.modes import game_day_modes
from penstock.pipelines.partition import text
from penstock.recovery.records import BackfillRequest
from tests.kits.client_harness import Harness

POOL = "flows"
TODAY, PAST, SPARE = "2025-11-17", "2025-11-10", "2025-11-18"


@dataclass(frozen=True, slots=True)
class FlowThings:
    """Ids of one customer's flows and related records."""

    customer: str = "acme"
    flow: str = "flow_00000000"
    blocked: str = "flow_00000000"
    spare: str = "flow_00000000"
    run: str = "run_00000000"
    override: str = "ovr_00000000"
    intervention: str = "int_00000000"
    approvable: str = "int_00000000"
    correlation: str = "flow_00000000"
    backfill: str = "bf_00000000"
    stopped: str = "bf_00000000"

    @property
    def ids(self) -> str:
        """Return all ids as one string."""
        return " ".join([self.flow, self.blocked, self.spare, self.run, self.override,
                         self.intervention, self.approvable, self.backfill,
                         self.stopped])  # fmt: skip


def daily() -> Pipeline:
    """Return a pipeline of two phases; the second requires three days of history."""

    def work(run: Any) -> None:
        """Do nothing; it is never called."""

    made = Pipeline(
        "daily",
        partition=text("day"),
        warehouse="w",
        modes=game_day_modes(),
        customer_column="shop",
    )
    raw = made.phase("raw")
    raw.processor("box", pool=POOL)(work)
    analytics = made.phase("analytics", after=raw)
    analytics.processor("players", pool=POOL, needs=[historical("an.days", days=3)])(work)
    return made


def flow_things(harness: Harness, customer: str) -> FlowThings:
    """Create flows, decisions, an override and an open intervention for a customer."""
    client = harness.client
    client.register([daily()])
    cause = f"cause-of-{customer}"

    def opened(partition: str, mode: str, *phases: str) -> FlowTrigger:
        request = FlowRequest(pipeline="daily", customer=customer, partition=partition, mode=mode,
                              phases=list(phases), correlation_id=cause)  # fmt: skip
        return client.flows.trigger(request)

    flow = opened(TODAY, "same_day")
    blocked, spare = opened(PAST, "backfill", "analytics"), opened(SPARE, "same_day")
    opened("2025-11-09", "backfill", "analytics")
    Orchestrator(harness.store).run_once()
    items = client.interventions.list(customer=customer).items
    item, other = sorted(items, key=lambda one: one.partition, reverse=True)
    approval = OverrideRequest(
        pipeline="daily", partition=TODAY, customer=customer, dependency="an.days",
        reason="known", expires_at=to_datetime(harness.clock.now() + HOUR),
    )  # fmt: skip
    granted = client.as_actor("ann").overrides.grant(approval)
    return FlowThings(
        customer=customer,
        flow=flow.flow.flow_id,
        blocked=blocked.flow.flow_id,
        spare=spare.flow.flow_id,
        run=flow.run_ids[0],
        override=granted.override_id,
        intervention=item.intervention_id,
        approvable=other.intervention_id,
        correlation=cause,
        backfill=_backfill(harness, customer, "2024-01-01"),
        stopped=_backfill(harness, customer, "2024-02-01"),
    )


def _backfill(harness: Harness, customer: str, partition: str) -> str:
    request = BackfillRequest(pipeline="daily", customer=customer, partitions=[partition])
    made = harness.client.backfills.start(request).backfill
    assert made is not None
    return made.backfill_id


CHANGES = {"min_quality": 0.5}
ABOUT = {"pipeline_template": "daily"}

FLOW_CALLS: Mapping[str, Callable[[FlowThings], tuple[str, Any]]] = {
    "GET /api/v1/pipeline-runs/{run_id}/why": lambda f: (f"/pipeline-runs/{f.run}/why", None),
    "GET /api/v1/flows": lambda _: ("/flows?only=open&sort=risk&q=2", None),
    "POST /api/v1/flows": lambda f: (
        "/flows",
        {**ABOUT, "customer_id": f.customer, "partition": "2025-11-20", "mode": "same_day",
         "correlation_id": "again"},
    ),
    "POST /api/v1/flows/preview": lambda f: (
        "/flows/preview",
        {**ABOUT, "customer_id": f.customer, "partition": TODAY, "mode": "same_day"},
    ),
    "GET /api/v1/flows/{flow_id}": lambda f: (f"/flows/{f.flow}", None),
    "GET /api/v1/grid": lambda f: (
        f"/grid?pipeline_template=daily&customer_id={f.customer}&from=2025-11-01",
        None,
    ),
    "GET /api/v1/flows/{flow_id}/explain": lambda f: (f"/flows/{f.blocked}/explain", None),
    "GET /api/v1/flows/{flow_id}/risk": lambda f: (f"/flows/{f.flow}/risk", None),
    "GET /api/v1/flows/{flow_id}/why": lambda f: (f"/flows/{f.blocked}/why", None),
    "GET /api/v1/flows/{flow_id}/items": lambda f: (f"/flows/{f.flow}/items", None),
    "GET /api/v1/flows/{flow_id}/items/summary": lambda f: (
        f"/flows/{f.flow}/items/summary",
        None,
    ),
    "POST /api/v1/flows/{flow_id}/items/retry": lambda f: (f"/flows/{f.flow}/items/retry", {}),
    "POST /api/v1/flows/{flow_id}/cancel": lambda f: (
        f"/flows/{f.spare}/cancel",
        {"reason": "enough"},
    ),
    "POST /api/v1/flows/replay": lambda f: (
        "/flows/replay",
        {**ABOUT, "customer_id": f.customer, "partition": SPARE, "from_phase": "analytics",
         "mode": "same_day", "force": True},
    ),
    "POST /api/v1/cancel": lambda f: (
        "/cancel", {"customer_id": f.customer, "from": "2099-01-01", "dry_run": True},
    ),
    "GET /api/v1/processors/slowest": lambda f: (
        f"/processors/slowest?customer_id={f.customer}", None,
    ),
    "GET /api/v1/interventions/{intervention_id}/impact": lambda f: (
        f"/interventions/{f.intervention}/impact", None,
    ),
    "POST /api/v1/interventions/{intervention_id}/approve": lambda f: (
        f"/interventions/{f.approvable}/approve", {"reason": "known"},
    ),
    "POST /api/v1/pipeline-configs/edit": lambda f: (
        "/pipeline-configs/edit",
        {"customer_id": f.customer, "change": {"priority": 6}, "dry_run": True},
    ),
    "GET /api/v1/schedules/due": lambda f: (
        f"/schedules/due?at=2025-11-17T03:00:00Z&customer_id={f.customer}", None,
    ),
    "GET /api/v1/backfills": lambda _: ("/backfills", None),
    "POST /api/v1/backfills": lambda f: (
        "/backfills",
        {**ABOUT, "customer_id": f.customer, "partitions": ["2023-01-01"], "reason": "again"},
    ),
    "GET /api/v1/backfills/{backfill_id}": lambda f: (f"/backfills/{f.backfill}", None),
    "GET /api/v1/backfills/{backfill_id}/partitions": lambda f: (
        f"/backfills/{f.backfill}/partitions", None,
    ),
    "POST /api/v1/backfills/{backfill_id}/pause": lambda f: (
        f"/backfills/{f.backfill}/pause", {"reason": "busy"},
    ),
    "POST /api/v1/backfills/{backfill_id}/resume": lambda f: (
        f"/backfills/{f.stopped}/resume", {"parallelism": 2},
    ),
    "POST /api/v1/backfills/{backfill_id}/cancel": lambda f: (
        f"/backfills/{f.stopped}/cancel", {"reason": "wrong"},
    ),
    "GET /api/v1/explain": lambda f: (
        f"/explain?pipeline_template=daily&partition={TODAY}&customer_id={f.customer}",
        None,
    ),
    "GET /api/v1/entities": lambda f: (
        f"/entities?entity=players:7&customer_id={f.customer}", None,
    ),
    "GET /api/v1/traces/{correlation_id}": lambda f: (f"/traces/{f.correlation}", None),
    "GET /api/v1/customers/{customer_id}/why": lambda f: (f"/customers/{f.customer}/why", None),
    "GET /api/v1/executions": lambda f: (f"/executions?cause={f.correlation}", None),
    "GET /api/v1/find": lambda f: (f"/find?q={f.flow}&customer_id={f.customer}", None),
    "POST /api/v1/events": lambda f: (
        "/events",
        {**ABOUT, "customer_id": f.customer, "partition": TODAY, "processor_name": "box",
         "processing_mode": "same_day", "execution_id": "e1"},
    ),
    "POST /api/v1/gates/check": lambda f: (
        "/gates/check",
        {**ABOUT, "customer_id": f.customer, "phase": "analytics", "partition": PAST,
         "flow_id": f.blocked},
    ),
    "POST /api/v1/gates/recheck": lambda f: (
        "/gates/recheck",
        {**ABOUT, "customer_id": f.customer, "partition": PAST, "flow_id": f.blocked},
    ),
    "GET /api/v1/gates/decisions": lambda _: ("/gates/decisions?pipeline_template=daily", None),
    "POST /api/v1/gates/what-if": lambda f: (
        "/gates/what-if",
        {**ABOUT, "changes": CHANGES, "flow_id": f.blocked, "customer_id": f.customer},
    ),
    "POST /api/v1/gates/backtest": lambda f: (
        "/gates/backtest",
        {**ABOUT, "changes": CHANGES, "customer_id": f.customer},
    ),
    "GET /api/v1/breakers": lambda _: ("/breakers?state=all", None),
    "GET /api/v1/breakers/explain": lambda f: (
        f"/breakers/explain?pipeline_template=daily&partition={PAST}&phase=analytics"
        f"&customer_id={f.customer}",
        None,
    ),
    "POST /api/v1/breakers/reset": lambda f: (
        "/breakers/reset",
        {**ABOUT, "customer_id": f.customer, "partition": PAST, "phase": "analytics"},
    ),
    "GET /api/v1/overrides": lambda _: ("/overrides", None),
    "POST /api/v1/overrides": lambda f: (
        "/overrides",
        {**ABOUT, "customer_id": f.customer, "partition": TODAY, "reason": "late", "expires": "1h"},
    ),
    "POST /api/v1/overrides/{override_id}/revoke": lambda f: (
        f"/overrides/{f.override}/revoke",
        {"reason": "it came"},
    ),
    "GET /api/v1/interventions": lambda _: ("/interventions", None),
    "GET /api/v1/interventions/{intervention_id}": lambda f: (
        f"/interventions/{f.intervention}",
        None,
    ),
    "POST /api/v1/interventions/{intervention_id}/resolve": lambda f: (
        f"/interventions/{f.intervention}/resolve",
        {"resolution": "loaded by hand"},
    ),
}  # fmt: skip
"""One proper call of every route about flows and gates."""

FLOW_BODIES: tuple[str, ...] = (
    "POST /api/v1/flows",
    "POST /api/v1/flows/preview",
    "POST /api/v1/backfills",
    "POST /api/v1/cancel",
    "POST /api/v1/pipeline-configs/edit",
    "POST /api/v1/flows/replay",
    "POST /api/v1/events",
    "POST /api/v1/gates/check",
    "POST /api/v1/gates/recheck",
    "POST /api/v1/gates/what-if",
    "POST /api/v1/gates/backtest",
    "POST /api/v1/overrides",
    "POST /api/v1/breakers/reset",
)
"""Routes whose body names a customer's flow or partition."""
