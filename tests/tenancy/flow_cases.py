"""What a tenant's client gets for another customer's flows, gates, overrides and explanations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from penstock.client import Client
from penstock.core.ids import encode
from penstock.flows.breakers.records import BreakerTarget
from penstock.flows.client.requests import ProcessorReport
from penstock.flows.gates.records import (
    BacktestRequest,
    ModeChanges,
    OverrideRequest,
    WhatIfRequest,
)
from penstock.flows.items.records import ItemRetry
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.recovery.records import BackfillRequest, CancelRequest, ConfigEdit, FlowReplay
from penstock.runs.action_records import RunTrigger
from penstock.runs.external.records import NewLogEntry, RunLogReport, RunStateReport, RunWaitRequest
from penstock.schedules.records import ConfigChange
from tests.tenancy.tenants import Things

Call = Callable[[Client, Things], Any]


def _flow(things: Things, **more: Any) -> FlowRequest:
    return FlowRequest(pipeline="gated", partition="p", customer=things.customer_id, **more)


def _report(things: Things) -> CompletionReport:
    return CompletionReport(
        pipeline="gated", processor="far", partition="p", customer=things.customer_id
    )


def _approval(things: Things) -> OverrideRequest:
    return OverrideRequest(
        pipeline="gated", partition="p", customer=things.customer_id, reason="r", expires="1h"
    )


def _message(things: Things) -> ProcessorReport:
    return ProcessorReport(
        pipeline="gated", processor="far", partition="p", customer=things.customer_id
    )


def _flow_id(things: Things) -> str:
    return encode("flow", things.flow)


def _backfill(things: Things) -> BackfillRequest:
    return BackfillRequest(pipeline="gated", partitions=["r"], customer=things.customer_id)


def _replay(things: Things) -> FlowReplay:
    return FlowReplay(pipeline="gated", partition="p", customer=things.customer_id, force=True)


def _backfill_id(things: Things) -> str:
    return encode("bf", things.backfill)


CHANGES = ModeChanges(proceed_at=50)

FOREIGN_FLOWS: dict[str, list[Call]] = {
    "views.journal": [lambda c, t: c.views.journal(customer=t.customer_id)],
    "views.longest_running": [lambda c, t: c.views.longest_running(customer=t.customer_id)],
    "views.today": [lambda c, t: c.views.today(customer=t.customer_id)],
    "views.last_failures": [lambda c, t: c.views.last_failures(customer=t.customer_id)],
    "views.customer_health": [lambda c, t: c.views.customer_health(t.customer_id)],
    "workers.load_state": [lambda c, t: c.workers.load_state(encode("run", t.held.run.run_id))],
    "workers.save_state": [
        lambda c, t: c.workers.save_state(
            encode("run", t.held.run.run_id),
            RunStateReport(fencing_token=t.held.run.token, state={"page": 7}),
        )
    ],
    "workers.log": [
        lambda c, t: c.workers.log(
            encode("run", t.held.run.run_id),
            RunLogReport(
                fencing_token=t.held.run.token, entries=[NewLogEntry(message="half done")]
            ),
        )
    ],
    "workers.wait": [
        lambda c, t: c.workers.wait(
            encode("run", t.held.run.run_id),
            RunWaitRequest(
                fencing_token=t.held.run.token,
                trigger=RunTrigger(pipeline="pair", partition="q"),
            ),
        )
    ],
    "flows.trigger": [
        lambda c, t: c.flows.trigger(_flow(t)),
        lambda c, t: c.flows.trigger(_flow(t, force=True)),
    ],
    "flows.complete": [lambda c, t: c.flows.complete(_report(t))],
    "flows.record": [lambda c, t: c.flows.record(_message(t))],
    "flows.get": [lambda c, t: c.flows.get(_flow_id(t))],
    "flows.list": [
        lambda c, t: c.flows.list(customer=t.customer_id),
        lambda c, t: c.flows.list(customer=t.customer_id, only="trouble"),
    ],
    "flows.grid": [lambda c, t: c.flows.grid("gated", customer=t.customer_id)],
    "items.list": [lambda c, t: c.items.list(_flow_id(t))],
    "items.summary": [lambda c, t: c.items.summary(_flow_id(t))],
    "items.retry": [lambda c, t: c.items.retry(_flow_id(t), ItemRetry())],
    "flows.cancel": [lambda c, t: c.flows.cancel(_flow_id(t))],
    "gates.check": [
        lambda c, t: c.gates.check("gated", "next", flow_id=_flow_id(t)),
        lambda c, t: c.gates.check("gated", "next", partition="p", customer=t.customer_id),
        lambda c, t: c.gates.check("gated", "next", customer=t.customer_id, mode="manual"),
    ],
    "gates.recheck": [
        lambda c, t: c.gates.recheck("gated", flow_id=_flow_id(t)),
        lambda c, t: c.gates.recheck("gated", partition="p", customer=t.customer_id),
    ],
    "gates.decisions": [lambda c, t: c.gates.decisions("gated", customer=t.customer_id)],
    "gates.what_if": [
        lambda c, t: c.gates.what_if(
            WhatIfRequest(pipeline="gated", changes=CHANGES, customer=t.customer_id)
        )
    ],
    "gates.backtest": [
        lambda c, t: c.gates.backtest(
            BacktestRequest(pipeline="gated", changes=CHANGES, customer=t.customer_id)
        )
    ],
    "analytics.dependency_health": [
        lambda c, t: c.analytics.dependency_health(customer=t.customer_id)
    ],
    "reviews.health": [lambda c, t: c.reviews.health(customer=t.customer_id)],
    "reviews.weekly": [lambda c, t: c.reviews.weekly(customer=t.customer_id)],
    "analytics.trends": [lambda c, t: c.analytics.trends(customer=t.customer_id)],
    "analytics.run_series": [lambda c, t: c.analytics.run_series(customer=t.customer_id)],
    "analytics.acknowledgments": [lambda c, t: c.analytics.acknowledgments(customer=t.customer_id)],
    "analytics.validation_failures": [
        lambda c, t: c.analytics.validation_failures(customer=t.customer_id)
    ],
    "analytics.overrides": [lambda c, t: c.analytics.overrides(customer=t.customer_id)],
    "analytics.end_to_end": [lambda c, t: c.analytics.end_to_end(customer=t.customer_id)],
    "detections.list": [lambda c, t: c.detections.list(customer=t.customer_id)],
    "anomalies.list": [lambda c, t: c.anomalies.list(customer=t.customer_id)],
    "slos.list": [lambda c, t: c.slos.list(customer=t.customer_id)],
    "slos.breaches": [lambda c, t: c.slos.breaches(customer=t.customer_id)],
    "detections.risk": [lambda c, t: c.detections.risk(_flow_id(t))],
    "breakers.list": [lambda c, t: c.breakers.list(customer=t.customer_id)],
    "breakers.get": [lambda c, t: c.breakers.get("gated", "p", "next", customer=t.customer_id)],
    "breakers.reset": [
        lambda c, t: c.breakers.reset(
            BreakerTarget(pipeline="gated", partition="p", phase="next", customer=t.customer_id)
        )
    ],
    "overrides.grant": [lambda c, t: c.overrides.grant(_approval(t))],
    "overrides.revoke": [lambda c, t: c.overrides.revoke(encode("ovr", t.override))],
    "overrides.list": [lambda c, t: c.overrides.list(customer=t.customer_id)],
    "interventions.get": [lambda c, t: c.interventions.get(encode("int", t.item))],
    "interventions.resolve": [lambda c, t: c.interventions.resolve(encode("int", t.item), "done")],
    "interventions.list": [lambda c, t: c.interventions.list(customer=t.customer_id)],
    "diagnostics.entity": [lambda c, t: c.diagnostics.entity("players:7", customer=t.customer_id)],
    "diagnostics.explain": [
        lambda c, t: c.diagnostics.explain("gated", "p", customer=t.customer_id)
    ],
    "diagnostics.explain_flow": [lambda c, t: c.diagnostics.explain_flow(_flow_id(t))],
    "diagnostics.why_flow": [lambda c, t: c.diagnostics.why_flow(_flow_id(t))],
    "diagnostics.why_config": [lambda c, t: c.diagnostics.why_config(encode("cfg", t.config_id))],
    "diagnostics.why_run": [
        lambda c, t: c.diagnostics.why_run(encode("run", t.waiting)),
        lambda c, t: c.diagnostics.why_run(encode("run", t.ended)),
    ],
    "diagnostics.trace": [
        lambda c, t: c.diagnostics.trace(_flow_id(t)),
        lambda c, t: c.diagnostics.trace(encode("run", t.waiting)),
    ],
    "diagnostics.why_customer": [lambda c, t: c.diagnostics.why_customer(t.customer_id)],
    "tracking.executions": [
        lambda c, t: c.tracking.executions(_flow_id(t)),
        lambda c, t: c.tracking.executions(encode("run", t.ended)),
    ],
    "tracking.find": [lambda c, t: c.tracking.find("wait", customer=t.customer_id)],
    "recovery.replay": [lambda c, t: c.recovery.replay(_replay(t))],
    "recovery.cancel": [
        lambda c, t: c.recovery.cancel(CancelRequest(customer=t.customer_id)),
        lambda c, t: c.recovery.cancel(CancelRequest(customer=t.customer_id, is_dry_run=True)),
    ],
    "recovery.edit_configs": [
        lambda c, t: c.recovery.edit_configs(
            ConfigEdit(customer=t.customer_id, change=ConfigChange(priority=9))
        )
    ],
    "configs.due": [
        lambda c, t: c.configs.due(datetime(2025, 11, 17, tzinfo=UTC), customer=t.customer_id)
    ],
    "recovery.approval_impact": [
        lambda c, t: c.recovery.approval_impact(encode("int", t.item)),
    ],
    "recovery.slowest": [lambda c, t: c.recovery.slowest(customer=t.customer_id)],
    "interventions.approve": [lambda c, t: c.interventions.approve(encode("int", t.item), "ok")],
    "backfills.start": [lambda c, t: c.backfills.start(_backfill(t))],
    "backfills.get": [lambda c, t: c.backfills.get(_backfill_id(t))],
    "backfills.list": [lambda c, t: c.backfills.list(customer=t.customer_id)],
    "backfills.partitions": [lambda c, t: c.backfills.partitions(_backfill_id(t))],
    "backfills.pause": [lambda c, t: c.backfills.pause(_backfill_id(t))],
    "backfills.resume": [lambda c, t: c.backfills.resume(_backfill_id(t), parallelism=2)],
    "backfills.cancel": [lambda c, t: c.backfills.cancel(_backfill_id(t))],
    "previews.trigger": [lambda c, t: c.previews.trigger(_flow(t))],
}
"""With another customer's objects: NotFound, in the same words as for objects that do not exist."""

OWN_FLOWS: dict[str, Callable[[Client], Any]] = {
    "backfills.list": lambda c: c.backfills.list().items,
    "flows.list": lambda c: [
        *c.flows.list().items,
        *c.flows.list(search="p").items,
    ],
    "views.journal": lambda c: c.views.journal(kind="flow", action="opened").items,
    "views.longest_running": lambda c: c.views.longest_running(),
    "views.last_failures": lambda c: c.views.last_failures(),
    "views.today": lambda c: c.views.today().flows,
    "gates.decisions": lambda c: c.gates.decisions("gated").items,
    "gates.what_if": lambda c: (
        c.gates.what_if(WhatIfRequest(pipeline="gated", changes=CHANGES)).items
    ),
    "breakers.list": lambda c: c.breakers.list(state="all").items,
    "detections.list": lambda c: c.detections.list(rule="dependency_late").items,
    "slos.list": lambda c: [p for one in c.slos.list(limit=500).items for p in one.points],
    "anomalies.list": lambda c: c.anomalies.list().items,
    "budgets.list": lambda c: c.budgets.list(),
    "slos.breaches": lambda c: c.slos.breaches(kind="flow").items,
    "overrides.list": lambda c: c.overrides.list().items,
    "interventions.list": lambda c: c.interventions.list().items,
}
"""Lists without a customer: the tenant's own, which resemble the other's."""


def flow_words(things: Things) -> list[str]:
    """Return the ids that errors about these objects may contain."""
    ids = (("flow", things.flow), ("ovr", things.override), ("int", things.item),
           ("bf", things.backfill))  # fmt: skip
    return [encode(kind, number) for kind, number in ids]
