"""Commands to offer: exactly what somebody types to mend what a sentence is about.

Quoted for a shell; the customer is named unless it is the one everybody means. `core.explain` and
`core.why` offer them; whether a command is wise is theirs to say.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from penstock.core.naming import DEFAULT_CUSTOMER
from penstock.flows.explain.facts import FlowFact, InterventionFact, OpenFact, PauseFact, RunFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A command and what it would do."""

    command: str
    does: str


def _said(*parts: str) -> str:
    return " ".join(["penstock", *(shlex.quote(part) for part in parts)])


def whose(customer: str) -> list[str]:
    """The option that names a customer; nothing for the one everybody means."""
    return [] if customer == DEFAULT_CUSTOMER else ["--customer", customer]


def trigger(pipeline: str, partition: str, customer: str, *more: str, does: str) -> Offer:
    """Start a flow, or part of one."""
    return Offer(command=_said("trigger", pipeline, partition, *more, *whose(customer)), does=does)


def trigger_phase(flow: FlowFact, phase: str) -> Offer:
    """Start a phase by hand."""
    return trigger(
        flow.pipeline,
        flow.partition,
        flow.customer,
        phase,
        "--mode",
        flow.mode,
        does=f"start {phase} by hand, in a new generation; its gate still decides",
    )


def check(flow: FlowFact, phase: str) -> Offer:
    """Look at the data now."""
    command = _said(
        "gate",
        "check",
        flow.pipeline,
        flow.partition,
        phase,
        "--mode",
        flow.mode,
        *whose(flow.customer),
    )
    return Offer(command=command, does=f"look at the data of {phase} now; changes nothing")


def override(flow: FlowFact, phase: str, dependency: str) -> Offer:
    """Approve going on without a dependency."""
    command = _said(
        "override",
        "grant",
        flow.pipeline,
        flow.partition,
        "--phase",
        phase,
        "--dependency",
        dependency,
        *whose(flow.customer),
        "--expires",
        "4h",
        "--reason",
        "WHY",
    )
    return Offer(command=command, does=f"let {phase} start without {dependency}, for 4 hours")


def resolve(item: InterventionFact) -> Offer:
    """Close an item of the manual queue."""
    command = _said("interventions", "resolve", item.intervention_id, "--resolution", "WHAT")
    return Offer(command=command, does="say what was done; the gate is asked again at once")


def retry(run: RunFact) -> Offer:
    """Run a dead run again."""
    return Offer(command=_said("runs", "retry", run.run_id), does=f"run {run.processor} again now")


def show_run(run: RunFact) -> Offer:
    """Look at a run."""
    does = f"see every attempt of {run.processor} and its errors"
    return Offer(command=_said("runs", "show", run.run_id), does=does)


def resume(pause: PauseFact) -> Offer:
    """Lift a pause."""
    subject = [] if pause.subject is None else [pause.subject]
    return Offer(command=_said("resume", pause.scope, *subject), does="lift the pause")


def complete(flow: FlowFact, phase: str, processor: str) -> Offer:
    """Report what somebody else ran."""
    command = _said(
        "complete",
        flow.pipeline,
        flow.partition,
        processor,
        "--phase",
        phase,
        "--mode",
        flow.mode,
        *whose(flow.customer),
    )
    return Offer(command=command, does=f"report that {processor} is done, if it is")


def worker(pool: str) -> Offer:
    """Run a worker."""
    more = [] if pool == "default" else ["--pool", pool]
    return Offer(command=_said("worker", "--pipelines", "FILE", *more), does="run a worker")


def cancel(flow: FlowFact) -> Offer:
    """End a flow that a newer generation has replaced."""
    does = f"end it: generation {flow.newer} has taken its place"
    return Offer(command=_said("flows", "cancel", flow.flow_id), does=does)


def explain(older: OpenFact) -> Offer:
    """Ask about another flow of the partition."""
    does = f"see why {older.mode} generation {older.generation} is still open"
    return Offer(command=_said("explain", older.flow_id), does=does)


def why(flow: FlowFact) -> Offer:
    """Ask for the proof."""
    return why_of(flow.flow_id)


def why_of(flow_id: str) -> Offer:
    """Ask for the proof of a flow by its id."""
    command = _said("why", flow_id)
    return Offer(command=command, does="see what stands in the way, as a tree")


def show_limit(name: str) -> Offer:
    """Look at a limit: its holders have leases that can be released."""
    return Offer(command=_said("limits", "show", name), does="see who holds it and who waits")


def open_limit(name: str) -> Offer:
    """Let somebody in where the capacity is 0."""
    return Offer(command=_said("limits", "set", name, "--capacity", "N"), does="let N in at a time")
