"""What a tenant's client gets for another customer's flows, gates, overrides and explanations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.client import Client
from penstock.core.ids import encode
from penstock.flows.client.requests import CompletionReport, FlowRequest
from penstock.flows.explain.client import FlowFilter
from penstock.flows.gates.client.overrides import OverrideRequest
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
        pipeline="gated", partition="p", customer=things.customer_id, reason="r", expires_at=2**60
    )


FOREIGN_FLOWS: dict[str, list[Call]] = {
    "flows.trigger": [
        lambda c, t: c.flows.trigger(_flow(t)),
        lambda c, t: c.flows.trigger(_flow(t, force=True)),
    ],
    "flows.complete": [lambda c, t: c.flows.complete(_report(t))],
    "flows.get": [
        lambda c, t: c.flows.get(t.flow),
        lambda c, t: c.flows.get(t.flow, t.customer_id),
    ],
    "flows.find": [lambda c, t: c.flows.find("gated", "p", customer=t.customer_id)],
    "flows.detail": [lambda c, t: c.flows.detail(t.flow)],
    "flows.page": [lambda c, t: c.flows.page(FlowFilter(), customer=t.customer_id)],
    "flows.trace": [lambda c, t: c.flows.trace("x", t.customer_id)],
    "flows.cancel": [lambda c, t: c.flows.cancel(t.flow)],
    "gates.check": [lambda c, t: c.gates.check("gated", "next", flow_id=t.flow)],
    "gates.history": [lambda c, t: c.gates.history("gated", customer=t.customer_id)],
    "gates.backtest": [
        lambda c, t: c.gates.backtest("gated", {"proceed_at": 50}, customer=t.customer_id)
    ],
    "overrides.grant": [lambda c, t: c.overrides.grant(_approval(t))],
    "overrides.revoke": [lambda c, t: c.overrides.revoke(t.override)],
    "overrides.page": [lambda c, t: c.overrides.page(customer=t.customer_id)],
    "interventions.get": [lambda c, t: c.interventions.get(t.item)],
    "interventions.resolve": [lambda c, t: c.interventions.resolve(t.item, "done")],
    "interventions.page": [lambda c, t: c.interventions.page(customer=t.customer_id)],
    "diagnostics.explain": [
        lambda c, t: c.diagnostics.explain("gated", "p", customer=t.customer_id)
    ],
    "diagnostics.explain_flow": [lambda c, t: c.diagnostics.explain_flow(t.flow)],
    "diagnostics.why_flow": [lambda c, t: c.diagnostics.why_flow(t.flow)],
    "diagnostics.why_run": [
        lambda c, t: c.diagnostics.why_run(t.waiting),
        lambda c, t: c.diagnostics.why_run(t.ended),
    ],
    "diagnostics.trace": [
        lambda c, t: c.diagnostics.trace(encode("flow", t.flow)),
        lambda c, t: c.diagnostics.trace(encode("run", t.waiting)),
    ],
    "previews.trigger": [lambda c, t: c.previews.trigger(_flow(t))],
}
"""With another customer's objects: NotFound, in the same words as for objects that do not exist."""

OWN_FLOWS: dict[str, Callable[[Client], Any]] = {
    "flows.page": lambda c: c.flows.page(FlowFilter()),
    "gates.history": lambda c: c.gates.history("gated"),
    "overrides.page": lambda c: c.overrides.page(),
    "interventions.page": lambda c: c.interventions.page(),
}
"""Lists without a customer: the tenant's own, which resemble the other's."""

ANYBODYS_FLOWS = frozenset({"gates.what_if"})
"""Without objects of a customer: the caller passes in what it got before."""


def flow_words(things: Things) -> list[str]:
    """Return the ids that errors about these objects may contain."""
    ids = (("flow", things.flow), ("ovr", things.override), ("int", things.item))
    return [encode(kind, number) for kind, number in ids]
