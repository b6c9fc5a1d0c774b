"""Suggested commands: copy-paste command lines that fix what an explanation describes.

Commands are quoted for a shell and name the customer unless it is the default customer.
`flows.explain.explain` and `flows.explain.why` choose which commands to suggest.
"""

from __future__ import annotations

import shlex

from penstock.core.naming import DEFAULT_CUSTOMER
from penstock.flows.explain.facts import (
    FlowFact,
    InterventionFact,
    OpenFlowFact,
    PauseFact,
    ProducerFact,
    RunFact,
)
from penstock.flows.explain.records import Suggestion


def _command(*parts: str) -> str:
    return " ".join(["penstock", *(shlex.quote(part) for part in parts)])


def customer_option(customer: str) -> list[str]:
    """Return the `--customer` option; empty for the default customer."""
    return [] if customer == DEFAULT_CUSTOMER else ["--customer", customer]


def config_option(flow: FlowFact) -> list[str]:
    """Return the `--config-id` option; empty for a flow that belongs to no config."""
    return [] if flow.config is None else ["--config-id", flow.config]


def trigger(pipeline: str, partition: str, customer: str, *more: str, does: str) -> Suggestion:
    """Suggest starting a flow, or part of one."""
    return Suggestion(
        command=_command("trigger", pipeline, partition, *more, *customer_option(customer)),
        does=does,
    )


def trigger_phase(flow: FlowFact, phase: str) -> Suggestion:
    """Suggest starting a phase manually."""
    return trigger(
        flow.pipeline,
        flow.partition,
        flow.customer,
        phase,
        "--mode",
        flow.mode,
        *config_option(flow),
        does=f"start {phase} manually, in a new generation that supersedes this one; "
        "its gate still decides",
    )


def produce_again(flow: FlowFact, made: ProducerFact) -> Suggestion:
    """Suggest running the phase of a producer again."""
    return trigger(
        flow.pipeline,
        flow.partition,
        flow.customer,
        made.phase,
        "--mode",
        flow.mode,
        does=f"run {made.processor}, which produces {made.table}, again in a new generation",
    )


def recheck(flow: FlowFact, phase: str) -> Suggestion:
    """Suggest evaluating a blocked gate again."""
    command = _command(
        "gate", "recheck", flow.pipeline, flow.partition, phase, *customer_option(flow.customer)
    )
    return Suggestion(command=command, does=f"evaluate the gate of {phase} again now")


def check(flow: FlowFact, phase: str) -> Suggestion:
    """Suggest probing the data of a phase now."""
    command = _command(
        "gate",
        "check",
        flow.pipeline,
        flow.partition,
        phase,
        "--mode",
        flow.mode,
        *customer_option(flow.customer),
    )
    return Suggestion(command=command, does=f"probe the data of {phase} now; changes nothing")


def approve(pipeline: str, partition: str, phase: str, customer: str) -> Suggestion:
    """Suggest an override that lets a single run start without the data that its gate lacks."""
    more = ["--phase", phase, *customer_option(customer), "--expires", "4h", "--reason", "WHY"]
    command = _command("override", "grant", pipeline, partition, *more)
    return Suggestion(command=command, does=f"let {phase} start without the missing data, for 4 h")


def override(flow: FlowFact, phase: str, dependency: str) -> Suggestion:
    """Suggest an override that lets a phase start without a dependency."""
    command = _command(
        "override",
        "grant",
        flow.pipeline,
        flow.partition,
        "--phase",
        phase,
        "--dependency",
        dependency,
        *customer_option(flow.customer),
        "--expires",
        "4h",
        "--reason",
        "WHY",
    )
    return Suggestion(command=command, does=f"let {phase} start without {dependency}, for 4 hours")


def resolve(item: InterventionFact) -> Suggestion:
    """Suggest resolving an intervention."""
    command = _command("interventions", "resolve", item.intervention_id, "--resolution", "WHAT")
    return Suggestion(
        command=command, does="record what was done; the gate is evaluated again immediately"
    )


def retry(run: RunFact) -> Suggestion:
    """Suggest retrying a failed run."""
    return Suggestion(
        command=_command("runs", "retry", run.run_id), does=f"run {run.processor} again now"
    )


def retry_items(flow: FlowFact, processor: str) -> Suggestion:
    """Suggest retrying the failed items of a processor."""
    return Suggestion(
        command=_command("items", "retry", flow.flow_id, "--processor", processor),
        does=f"run the failed items of {processor} again now",
    )


def show_run(run: RunFact) -> Suggestion:
    """Suggest showing a run."""
    does = f"see every attempt of {run.processor} and its errors"
    return Suggestion(command=_command("runs", "show", run.run_id), does=does)


def resume(pause: PauseFact) -> Suggestion:
    """Suggest lifting a pause."""
    subject = [] if pause.subject is None else [pause.subject]
    return Suggestion(command=_command("resume", pause.scope, *subject), does="lift the pause")


def complete(flow: FlowFact, phase: str, processor: str) -> Suggestion:
    """Suggest reporting the completion of work that ran outside Penstock."""
    command = _command(
        "complete",
        flow.pipeline,
        flow.partition,
        processor,
        "--phase",
        phase,
        "--mode",
        flow.mode,
        *customer_option(flow.customer),
    )
    return Suggestion(command=command, does=f"report {processor} as done, if it is")


def worker(pool: str) -> Suggestion:
    """Suggest starting a worker for a pool."""
    more = [] if pool == "default" else ["--pool", pool]
    return Suggestion(
        command=_command("worker", "--pipelines", "FILE", *more), does="start a worker"
    )


def cancel(flow: FlowFact) -> Suggestion:
    """Suggest cancelling a flow that a newer generation has replaced."""
    does = f"cancel this flow: generation {flow.newer_generation} has replaced it"
    return Suggestion(command=_command("flows", "cancel", flow.flow_id), does=does)


def explain(older: OpenFlowFact) -> Suggestion:
    """Suggest explaining an older flow of the partition that is still open."""
    does = f"see why {older.mode} generation {older.generation} is still open"
    return Suggestion(command=_command("explain", older.flow_id), does=does)


def why(flow: FlowFact) -> Suggestion:
    """Suggest the `why` command for a flow."""
    return why_of(flow.flow_id)


def why_of(flow_id: str) -> Suggestion:
    """Suggest the `why` command for a flow id."""
    command = _command("why", flow_id)
    return Suggestion(command=command, does="see what blocks the flow, as a tree")


def enable(config_id: str) -> Suggestion:
    """Suggest enabling a config."""
    return Suggestion(
        command=_command("configs", "enable", config_id), does="start runs again by its schedule"
    )


def ledger(config_id: str) -> Suggestion:
    """Suggest listing the occurrences of a config that did not start."""
    return Suggestion(
        command=_command("configs", "ledger", config_id), does="list what did not start"
    )


def create_topic(name: str) -> Suggestion:
    """Suggest creating a topic."""
    return Suggestion(command=_command("topics", "create", name), does="create the topic")


def show_limit(name: str) -> Suggestion:
    """Suggest showing a limit, which lists the holders' leases that can be released."""
    return Suggestion(command=_command("limits", "show", name), does="see its holders and waiters")


def set_concurrency(customer: str) -> Suggestion:
    """Suggest raising the maximum number of a customer's runs."""
    command = _command("customers", "set", customer, "--concurrency", "N")
    return Suggestion(command=command, does="change the maximum")


def pending_runs(customer: str) -> Suggestion:
    """Suggest listing the pending runs of a customer."""
    command = _command("runs", "list", "--customer", customer, "--state", "PENDING")
    return Suggestion(command=command, does="list its pending runs")


def open_dead_letters(customer: str) -> Suggestion:
    """Suggest listing the dead letters of a customer."""
    return Suggestion(command=_command("dlq", "list", "--customer", customer), does="list them")


def open_interventions(customer: str) -> Suggestion:
    """Suggest listing the interventions of a customer."""
    command = _command("interventions", "list", "--customer", customer)
    return Suggestion(command=command, does="list them")


def open_limit(name: str) -> Suggestion:
    """Suggest raising the capacity of a limit, for example from 0."""
    return Suggestion(
        command=_command("limits", "set", name, "--capacity", "N"), does="set its capacity"
    )
