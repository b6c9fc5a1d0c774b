"""Implement the use cases for flows and gates on the database, in the API's JSON shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from penstock.cli.backends.protocol import Shape
from penstock.cli.backends.protocol_flows import DecisionQuery, FlowQuery, FlowRef
from penstock.client import Client
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.ids import decode
from penstock.flows import shapes as flow_shapes
from penstock.flows.client.completion_message import report_of
from penstock.flows.client.requests import FlowRequest
from penstock.flows.explain.client import FlowFilter
from penstock.flows.gates import shapes as gate_shapes
from penstock.flows.gates.client.overrides import OverrideRequest
from penstock.flows.gates.override import parse_override_duration


class DatabaseFlows:
    """Use cases for flows and gates that access the database directly."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def page(self, asked: FlowQuery) -> list[Shape]:
        """Return flows, newest first."""
        wanted = FlowFilter(
            partition=asked.partition, mode=asked.mode, state=asked.state, limit=asked.limit
        )
        found = self._client.flows.page(wanted, pipeline=asked.pipeline, customer=asked.customer)
        return [flow_shapes.flow_shape(flow) for flow in found]

    def detail(self, flow_id: str) -> Shape:
        """Return a flow with its phases, completions, triggers and decisions."""
        return flow_shapes.flow_detail_shape(self._client.flows.detail(decode("flow", flow_id)))

    def explain(self, place: FlowRef) -> Shape:
        """Explain the newest flow of a partition."""
        explanation = self._client.diagnostics.explain(
            place.pipeline,
            place.partition,
            customer=place.customer,
            mode=place.mode,
            generation=place.generation,
        )
        return flow_shapes.flow_explanation_shape(explanation)

    def explain_flow(self, flow_id: str) -> Shape:
        """Explain a flow."""
        explanation = self._client.diagnostics.explain_flow(decode("flow", flow_id))
        return flow_shapes.flow_explanation_shape(explanation)

    def why_flow(self, flow_id: str, phase: str | None) -> Shape:
        """Return why a flow or a phase has not ended."""
        proof = self._client.diagnostics.why_flow(decode("flow", flow_id), phase)
        return flow_shapes.cause_tree_shape(proof)

    def why_run(self, run_id: str) -> Shape:
        """Return why a run has not started or ended."""
        return flow_shapes.cause_tree_shape(self._client.diagnostics.why_run(decode("run", run_id)))

    def trace(self, cause: str) -> Shape:
        """Return everything that shares the correlation id of `cause`."""
        return flow_shapes.trace_shape(self._client.diagnostics.trace(cause))

    def trigger(self, wanted: Shape) -> Shape:
        """Open a flow, or start one at given phases."""
        return flow_shapes.opened_shape(self._client.flows.trigger(_request(wanted)))

    def preview(self, wanted: Shape) -> Shape:
        """Return what a trigger would do."""
        return flow_shapes.preview_shape(self._client.previews.trigger(_request(wanted)))

    def cancel(self, flow_id: str, reason: str) -> int:
        """Cancel a flow; return how many runs were cancelled or asked to stop."""
        return self._client.flows.cancel(decode("flow", flow_id), reason=reason)

    def complete(self, message: Shape) -> Shape:
        """Report a completion and return its outcome."""
        return flow_shapes.completion_receipt_shape(self._client.flows.complete(report_of(message)))

    def check(self, wanted: Shape) -> Shape:
        """Return what a gate would decide now."""
        flow_id = wanted.get("flow_id")
        check = self._client.gates.check(
            wanted["pipeline_template"],
            wanted["phase"],
            partition=wanted.get("partition"),
            mode=wanted.get("mode"),
            processor=wanted.get("processor"),
            flow_id=None if flow_id is None else decode("flow", flow_id),
            customer=wanted.get("customer_id"),
        )
        return gate_shapes.check_shape(check)

    def decisions(self, which: DecisionQuery) -> list[Shape]:
        """Return recorded decisions, newest first."""
        return [gate_shapes.decision_shape(row) for row in self._history(which)]

    def what_if(self, wanted: Shape) -> list[Shape]:
        """Recompute recorded decisions with other settings."""
        which = DecisionQuery(
            pipeline=wanted["pipeline_template"],
            partition=wanted.get("partition"),
            phase=wanted.get("phase"),
            customer=wanted.get("customer_id"),
            limit=wanted["limit"],
        )
        rows = self._history(which)
        with _changes_named():
            tried = self._client.gates.what_if(rows, wanted["changes"])
        return [gate_shapes.decision_comparison_shape(one) for one in tried]

    def backtest(self, wanted: Shape) -> Shape:
        """Recompute the decisions of past days with other settings."""
        with _changes_named():
            found = self._client.gates.backtest(
                wanted["pipeline_template"],
                wanted["changes"],
                days=wanted["days"],
                phase=wanted.get("phase"),
                customer=wanted.get("customer_id"),
            )
        return gate_shapes.backtest_shape(found)

    def overrides(self, which: DecisionQuery) -> list[Shape]:
        """Return approvals, newest first."""
        rows = self._client.overrides.page(
            pipeline=which.pipeline,
            partition=which.partition,
            live=which.live,
            customer=which.customer,
            limit=which.limit,
        )
        return [gate_shapes.override_shape(row) for row in rows]

    def grant(self, wanted: Shape) -> Shape:
        """Approve starting without a dependency; return the approval."""
        expires_at = self._client.views.now() + parse_override_duration(wanted["expires"])
        approval = OverrideRequest(
            pipeline=wanted["pipeline_template"],
            partition=wanted["partition"],
            reason=wanted["reason"],
            expires_at=expires_at,
            customer=wanted.get("customer_id"),
            phase=wanted.get("phase"),
            processor=wanted.get("processor"),
            dependency=wanted.get("dependency"),
            source="cli",
            notes=wanted.get("notes", ""),
        )
        return gate_shapes.override_shape(self._client.overrides.grant(approval))

    def revoke(self, override_id: str, reason: str) -> None:
        """Revoke an approval."""
        self._client.overrides.revoke(decode("ovr", override_id), reason=reason)

    def interventions(self, *, status: str, customer: str | None, limit: int) -> list[Shape]:
        """Return interventions, newest first."""
        rows = self._client.interventions.page(
            status=None if status == "all" else status, customer=customer, limit=limit
        )
        return [gate_shapes.intervention_shape(row) for row in rows]

    def intervention(self, intervention_id: str) -> Shape:
        """Return one intervention."""
        item = self._client.interventions.get(decode("int", intervention_id))
        return gate_shapes.intervention_shape(item)

    def resolve(self, intervention_id: str, resolution: str) -> None:
        """Mark an intervention as resolved."""
        self._client.interventions.resolve(decode("int", intervention_id), resolution)

    def _history(self, which: DecisionQuery) -> Any:
        assert which.pipeline is not None
        return self._client.gates.history(
            which.pipeline,
            partition=which.partition,
            phase=which.phase,
            customer=which.customer,
            limit=which.limit,
        )


@contextlib.contextmanager
def _changes_named() -> Iterator[None]:
    """Turn DeclarationError from conflicting settings into InvalidInput for `changes`."""
    try:
        yield
    except DeclarationError as error:
        raise InvalidInput("changes", "settings that fit together", error.message) from None


def _request(wanted: Shape) -> FlowRequest:
    return FlowRequest(
        pipeline=wanted["pipeline_template"],
        customer=wanted.get("customer_id"),
        partition=wanted.get("partition"),
        mode=wanted.get("mode"),
        backfill=wanted.get("backfill", False),
        phases=tuple(wanted.get("phases", ())),
        no_downstream=wanted.get("no_downstream", False),
        force=wanted.get("force", False),
        parameters=wanted.get("parameters"),
        priority=wanted.get("execution_priority", 5),
        correlation_id=wanted.get("correlation_id"),
    )
