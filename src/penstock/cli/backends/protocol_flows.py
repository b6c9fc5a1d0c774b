"""The use cases of the commands for flows and gates; see `cli.backends.protocol`.

`DatabaseFlows` implements them on the database, `HttpFlows` through the API; both return the same
plain JSON. Bodies have the API's field names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.cli.backends.protocol import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowQuery:
    """Filter for a list of flows."""

    customer: str | None = None
    pipeline: str | None = None
    partition: str | None = None
    mode: str | None = None
    state: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRef:
    """Identifies a flow by pipeline and partition; the newest one if `generation` is None."""

    pipeline: str
    partition: str
    customer: str | None = None
    mode: str | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionQuery:
    """Filter for a list of decisions or approvals; `live` selects approvals in force."""

    pipeline: str | None = None
    partition: str | None = None
    phase: str | None = None
    customer: str | None = None
    live: bool = False
    limit: int = 50


def open_flow(explanation: Shape) -> Shape | None:
    """Return the explained flow if it is open, else the newest older open one, or None."""
    flow: Shape | None = explanation["flow"]
    if flow is not None and flow["state"] == "OPEN":
        return flow
    return next(iter(explanation["still_open"]), None)


class FlowCases(Protocol):
    """Use cases for flows and gates."""

    def page(self, asked: FlowQuery) -> list[Shape]:
        """Return flows, newest first."""
        ...

    def detail(self, flow_id: str) -> Shape:
        """Return a flow with its phases, completions, triggers and decisions."""
        ...

    def explain(self, place: FlowRef) -> Shape:
        """Explain the newest flow of a partition; without one, `flow` is None."""
        ...

    def explain_flow(self, flow_id: str) -> Shape:
        """Explain a flow."""
        ...

    def why_flow(self, flow_id: str, phase: str | None) -> Shape:
        """Return why a flow or a phase has not ended."""
        ...

    def why_run(self, run_id: str) -> Shape:
        """Return why a run has not started or ended."""
        ...

    def trace(self, cause: str) -> Shape:
        """Return everything that shares the correlation id of `cause`."""
        ...

    def trigger(self, wanted: Shape) -> Shape:
        """Open a flow, or start one at given phases."""
        ...

    def preview(self, wanted: Shape) -> Shape:
        """Return what a trigger would do."""
        ...

    def cancel(self, flow_id: str, reason: str) -> int:
        """Cancel a flow; return how many runs were cancelled or asked to stop."""
        ...

    def complete(self, message: Shape) -> Shape:
        """Report a completion and return its outcome."""
        ...

    def check(self, wanted: Shape) -> Shape:
        """Return what a gate would decide now."""
        ...

    def decisions(self, which: DecisionQuery) -> list[Shape]:
        """Return recorded decisions, newest first."""
        ...

    def what_if(self, wanted: Shape) -> list[Shape]:
        """Recompute recorded decisions with other settings."""
        ...

    def backtest(self, wanted: Shape) -> Shape:
        """Recompute the decisions of past days with other settings."""
        ...

    def overrides(self, which: DecisionQuery) -> list[Shape]:
        """Return approvals, newest first."""
        ...

    def grant(self, wanted: Shape) -> Shape:
        """Approve starting without a dependency; return the approval."""
        ...

    def revoke(self, override_id: str, reason: str) -> None:
        """Revoke an approval."""
        ...

    def interventions(self, *, status: str, customer: str | None, limit: int) -> list[Shape]:
        """Return interventions, newest first; `status` may be `all`."""
        ...

    def intervention(self, intervention_id: str) -> Shape:
        """Return one intervention."""
        ...

    def resolve(self, intervention_id: str, resolution: str) -> None:
        """Mark an intervention as resolved."""
        ...
