"""Implement the use cases for flows and gates through the API, with the generated client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.cli.backends.paging import read_pages
from penstock.cli.backends.protocol import Shape, rename_field
from penstock.cli.backends.protocol_flows import DecisionQuery, FlowQuery, FlowRef
from penstock.remote import Api


class HttpFlows:
    """Use cases for flows and gates through the API."""

    def __init__(self, api: Api) -> None:
        # Typed as Any: commands read the typed responses of the client as plain JSON objects.
        self._flows: Any = api.flows
        self._gates: Any = api.gates

    def page(self, asked: FlowQuery) -> list[Shape]:
        """Return flows, newest first."""
        query = {
            "customer_id": asked.customer,
            "pipeline_template": asked.pipeline,
            "partition": asked.partition,
            "mode": asked.mode,
            "state": asked.state,
        }
        with _pipeline_named():
            return read_pages(self._flows.list_flows, asked.limit, query)

    def detail(self, flow_id: str) -> Shape:
        """Return a flow with its phases, completions, triggers and decisions."""
        return _shape(self._flows.get_flow(flow_id))

    def explain(self, place: FlowRef) -> Shape:
        """Explain the newest flow of a partition."""
        with _pipeline_named():
            return _shape(
                self._flows.explain_partition(
                    pipeline_template=place.pipeline,
                    partition=place.partition,
                    customer_id=place.customer,
                    mode=place.mode,
                    generation=place.generation,
                )
            )

    def explain_flow(self, flow_id: str) -> Shape:
        """Explain a flow."""
        return _shape(self._flows.explain_flow(flow_id))

    def why_flow(self, flow_id: str, phase: str | None) -> Shape:
        """Return why a flow or a phase has not ended."""
        return _shape(self._flows.why_flow(flow_id, phase=phase))

    def why_run(self, run_id: str) -> Shape:
        """Return why a run has not started or ended."""
        return _shape(self._flows.why_run(run_id))

    def trace(self, cause: str) -> Shape:
        """Return everything that shares the correlation id of `cause`."""
        return _shape(self._flows.trace(cause))

    def trigger(self, wanted: Shape) -> Shape:
        """Open a flow, or start one at given phases."""
        with _pipeline_named(), rename_field("priority", ["execution_priority"]):
            return _shape(self._flows.trigger_flow(_given(wanted)))

    def preview(self, wanted: Shape) -> Shape:
        """Return what a trigger would do."""
        with _pipeline_named(), rename_field("priority", ["execution_priority"]):
            return _shape(self._flows.preview_flow(_given(wanted)))

    def cancel(self, flow_id: str, reason: str) -> int:
        """Cancel a flow; return how many runs were cancelled or asked to stop."""
        return int(self._flows.cancel_flow(flow_id, {"reason": reason})["runs"])

    def complete(self, message: Shape) -> Shape:
        """Report a completion and return its outcome."""
        with _pipeline_named(), rename_field("processor", ["processor_name"]):
            return _shape(self._flows.report_completion(_given(message)))

    def check(self, wanted: Shape) -> Shape:
        """Return what a gate would decide now."""
        with _pipeline_named():
            return _shape(self._gates.check_gate(_given(wanted)))

    def decisions(self, which: DecisionQuery) -> list[Shape]:
        """Return recorded decisions, newest first."""
        query = {
            "pipeline_template": which.pipeline,
            "partition": which.partition,
            "phase": which.phase,
            "customer_id": which.customer,
        }
        with _pipeline_named():
            return read_pages(self._gates.list_decisions, which.limit, query)

    def what_if(self, wanted: Shape) -> list[Shape]:
        """Recompute recorded decisions with other settings."""
        with _pipeline_named():
            return list(self._gates.what_if(_given(wanted))["items"])

    def backtest(self, wanted: Shape) -> Shape:
        """Recompute the decisions of past days with other settings."""
        with _pipeline_named():
            return _shape(self._gates.backtest(_given(wanted)))

    def overrides(self, which: DecisionQuery) -> list[Shape]:
        """Return approvals, newest first."""
        query = {
            "pipeline_template": which.pipeline,
            "partition": which.partition,
            "live": which.live,
            "customer_id": which.customer,
        }
        with _pipeline_named():
            return read_pages(self._gates.list_overrides, which.limit, query)

    def grant(self, wanted: Shape) -> Shape:
        """Approve starting without a dependency; return the approval."""
        with _pipeline_named():
            return _shape(self._gates.grant_override(_given(wanted)))

    def revoke(self, override_id: str, reason: str) -> None:
        """Revoke an approval."""
        self._gates.revoke_override(override_id, {"reason": reason})

    def interventions(self, *, status: str, customer: str | None, limit: int) -> list[Shape]:
        """Return interventions, newest first."""
        query = {"status": status, "customer_id": customer}
        return read_pages(self._gates.list_interventions, limit, query)

    def intervention(self, intervention_id: str) -> Shape:
        """Return one intervention."""
        return _shape(self._gates.get_intervention(intervention_id))

    def resolve(self, intervention_id: str, resolution: str) -> None:
        """Mark an intervention as resolved."""
        self._gates.resolve_intervention(intervention_id, {"resolution": resolution})


def _pipeline_named() -> Any:
    return rename_field("pipeline", ["pipeline_template"])


def _shape(value: Any) -> Shape:
    shape: Shape = value
    return shape


def _given(fields: Mapping[str, Any]) -> Shape:
    return {name: value for name, value in fields.items() if value is not None}
