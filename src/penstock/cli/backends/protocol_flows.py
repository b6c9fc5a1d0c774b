"""What commands about flows and gates can do, whoever does it; see `cli.usecases`.

`HereFlows` does it on the database, `ThereFlows` through the API of a URL; both answer with the
same plain JSON. Bodies have the API's field names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.cli.backends.protocol import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsAsked:
    """Which flows a list shows."""

    customer: str | None = None
    pipeline: str | None = None
    partition: str | None = None
    mode: str | None = None
    state: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A flow by what it is about; the newest unless a generation is named."""

    pipeline: str
    partition: str
    customer: str | None = None
    mode: str | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """Which decisions or approvals a list shows."""

    pipeline: str | None = None
    partition: str | None = None
    phase: str | None = None
    customer: str | None = None
    live: bool = False
    limit: int = 50


def open_flow(told: Shape) -> Shape | None:
    """The open flow an explanation is about, or else the newest older one; None: none is open."""
    flow: Shape | None = told["flow"]
    if flow is not None and flow["state"] == "OPEN":
        return flow
    return next(iter(told["still_open"]), None)


class FlowCases(Protocol):
    """Everything commands about flows and gates ask for."""

    def page(self, asked: FlowsAsked) -> list[Shape]:
        """Flows, newest first."""
        ...

    def detail(self, flow_id: str) -> Shape:
        """A flow with everything known of it."""
        ...

    def explain(self, place: Place) -> Shape:
        """The newest flow of a partition in words, or that there is none."""
        ...

    def explain_flow(self, flow_id: str) -> Shape:
        """A flow in words."""
        ...

    def why_flow(self, flow_id: str, phase: str | None) -> Shape:
        """Why a flow or a phase has not ended."""
        ...

    def why_run(self, run_id: str) -> Shape:
        """Why a run has not started or ended."""
        ...

    def trace(self, cause: str) -> Shape:
        """The path of a cause."""
        ...

    def trigger(self, wanted: Shape) -> Shape:
        """Open a flow, or part of one."""
        ...

    def preview(self, wanted: Shape) -> Shape:
        """What a trigger would do."""
        ...

    def cancel(self, flow_id: str, reason: str) -> int:
        """End a flow; how many runs were cancelled or asked."""
        ...

    def complete(self, message: Shape) -> Shape:
        """Report a completion; what became of it."""
        ...

    def check(self, wanted: Shape) -> Shape:
        """What a gate would say now."""
        ...

    def decisions(self, which: Narrowed) -> list[Shape]:
        """Recorded decisions, newest first."""
        ...

    def what_if(self, wanted: Shape) -> list[Shape]:
        """Recorded decisions under other settings."""
        ...

    def backtest(self, wanted: Shape) -> Shape:
        """Days of decisions under other settings."""
        ...

    def overrides(self, which: Narrowed) -> list[Shape]:
        """Approvals, newest first."""
        ...

    def grant(self, wanted: Shape) -> Shape:
        """Approve going on without a dependency."""
        ...

    def revoke(self, override_id: str, reason: str) -> None:
        """Take an approval back."""
        ...

    def interventions(self, *, status: str, customer: str | None, limit: int) -> list[Shape]:
        """The manual queue, newest first; status may be `all`."""
        ...

    def intervention(self, intervention_id: str) -> Shape:
        """One item."""
        ...

    def resolve(self, intervention_id: str, resolution: str) -> None:
        """Say what was done about an item."""
        ...
