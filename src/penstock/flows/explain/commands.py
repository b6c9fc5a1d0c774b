"""Suggested commands: copy-paste command lines that fix what an explanation describes.

Commands are quoted for a shell and name the customer unless it is the default customer. Each also
names the API's operation that does the same, with its arguments.
`flows.explain.explain` and `flows.explain.why` choose which commands to suggest.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

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
from penstock.schedules.liveness import START


def suggestion(
    parts: Sequence[str], does: str, action: str | None = None, **arguments: Any
) -> Suggestion:
    """Return a suggested command and the operation of the API that does the same.

    arguments: by their names in the API; those that are None are omitted.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    return Suggestion(
        command=shlex.join(["penstock", *parts]), does=does, action=action, arguments=given
    )


def customer_option(customer: str) -> list[str]:
    """Return the `--customer` option; empty for the default customer."""
    return [] if customer == DEFAULT_CUSTOMER else ["--customer", customer]


def _config_option(config_id: str | None) -> list[str]:
    return [] if config_id is None else ["--config-id", config_id]


def trigger(
    pipeline: str,
    partition: str,
    customer: str,
    *,
    does: str,
    phase: str | None = None,
    mode: str | None = None,
    config_id: str | None = None,
) -> Suggestion:
    """Suggest starting a flow, or part of one."""
    more = [] if phase is None else [phase]
    more += [] if mode is None else ["--mode", mode]
    more += [*_config_option(config_id), *customer_option(customer)]
    return suggestion(
        ["trigger", pipeline, partition, *more],
        does,
        "flows.trigger",
        pipeline_template=pipeline,
        partition=partition,
        customer_id=customer,
        phases=None if phase is None else [phase],
        mode=mode,
        config_id=config_id,
    )


def preview_trigger(
    pipeline: str, partition: str, customer: str, mode: str | None, config_id: str | None = None
) -> Suggestion:
    """Suggest showing what a trigger would start."""
    more = [*([] if mode is None else ["--mode", mode]), "--dry-run"]
    more += [*_config_option(config_id), *customer_option(customer)]
    return suggestion(
        ["trigger", pipeline, partition, *more],
        "see what would start",
        "previews.trigger",
        pipeline_template=pipeline,
        partition=partition,
        customer_id=customer,
        mode=mode,
        config_id=config_id,
    )


def submit_run(pipeline: str, partition: str, customer: str) -> Suggestion:
    """Suggest submitting a run of a pipeline that has no flows."""
    return suggestion(
        ["runs", "submit", pipeline, "--partition", partition, *customer_option(customer)],
        "submit a run of this partition",
        "runs.submit",
        pipeline_template=pipeline,
        partition=partition,
        customer_id=customer,
    )


def runs_of(pipeline: str, partition: str, customer: str) -> Suggestion:
    """Suggest listing the runs of a partition."""
    where = ["--customer", customer, "--pipeline", pipeline, "--partition", partition]
    return suggestion(
        ["runs", "list", *where],
        "list its runs",
        "runs.list_customer",
        customer_id=customer,
        pipeline_template=pipeline,
        partition=partition,
    )


def trigger_phase(flow: FlowFact, phase: str) -> Suggestion:
    """Suggest starting a phase manually."""
    return trigger(
        flow.pipeline,
        flow.partition,
        flow.customer,
        phase=phase,
        mode=flow.mode,
        config_id=flow.config,
        does=f"start {phase} manually, in a new generation that supersedes this one; "
        "its gate still decides",
    )


def replay_from(flow: FlowFact, phase: str) -> Suggestion:
    """Suggest running a flow again from a phase that failed."""
    more = [*_config_option(flow.config), *customer_option(flow.customer)]
    return suggestion(
        ["replay", flow.pipeline, flow.partition, "--from", phase, "--mode", flow.mode, *more],
        f"run the flow again from {phase}; first shows what will run and be overwritten",
        "recovery.replay",
        pipeline_template=flow.pipeline,
        partition=flow.partition,
        customer_id=flow.customer,
        from_phase=phase,
        mode=flow.mode,
        config_id=flow.config,
    )


def produce_again(flow: FlowFact, made: ProducerFact) -> Suggestion:
    """Suggest running the phase of a producer again."""
    return trigger(
        flow.pipeline,
        flow.partition,
        flow.customer,
        phase=made.phase,
        mode=flow.mode,
        config_id=flow.config,
        does=f"run {made.processor}, which produces {made.table}, again in a new generation",
    )


def recheck(flow: FlowFact, phase: str) -> Suggestion:
    """Suggest evaluating a blocked gate again."""
    where = [flow.pipeline, flow.partition, phase, *customer_option(flow.customer)]
    return suggestion(
        ["gate", "recheck", *where],
        f"evaluate the gate of {phase} again now",
        "gates.recheck",
        pipeline_template=flow.pipeline,
        partition=flow.partition,
        phase=phase,
        customer_id=flow.customer,
        flow_id=flow.flow_id,
    )


def check(flow: FlowFact, phase: str) -> Suggestion:
    """Suggest probing the data of a phase now."""
    where = [flow.pipeline, flow.partition, phase, "--mode", flow.mode]
    return suggestion(
        ["gate", "check", *where, *customer_option(flow.customer)],
        f"probe the data of {phase} now; changes nothing",
        "gates.check",
        pipeline_template=flow.pipeline,
        partition=flow.partition,
        phase=phase,
        mode=flow.mode,
        customer_id=flow.customer,
        flow_id=flow.flow_id,
    )


def approve(pipeline: str, partition: str, phase: str, customer: str) -> Suggestion:
    """Suggest an override that lets a single run start without the data that its gate lacks."""
    more = ["--phase", phase, *customer_option(customer), "--expires", "4h", "--reason", "WHY"]
    return suggestion(
        ["override", "grant", pipeline, partition, *more],
        f"let {phase} start without the missing data, for 4 h",
        "overrides.grant",
        pipeline_template=pipeline,
        partition=partition,
        phase=phase,
        customer_id=customer,
        expires="4h",
    )


def override(flow: FlowFact, phase: str, dependency: str) -> Suggestion:
    """Suggest an override that lets a phase start without a dependency."""
    where = [flow.pipeline, flow.partition, "--phase", phase, "--dependency", dependency]
    more = [*customer_option(flow.customer), "--expires", "4h", "--reason", "WHY"]
    return suggestion(
        ["override", "grant", *where, *more],
        f"let {phase} start without {dependency}, for 4 hours",
        "overrides.grant",
        pipeline_template=flow.pipeline,
        partition=flow.partition,
        phase=phase,
        dependency=dependency,
        customer_id=flow.customer,
        expires="4h",
    )


def resolve(item: InterventionFact) -> Suggestion:
    """Suggest resolving an intervention."""
    return suggestion(
        ["interventions", "resolve", item.intervention_id, "--resolution", "WHAT"],
        "record what was done; the gate is evaluated again immediately",
        "interventions.resolve",
        intervention_id=item.intervention_id,
    )


def retry(run: RunFact) -> Suggestion:
    """Suggest retrying a failed run."""
    does = f"run {run.processor} again now"
    return suggestion(["runs", "retry", run.run_id], does, "runs.retry", run_id=run.run_id)


def retry_items(flow: FlowFact, processor: str) -> Suggestion:
    """Suggest retrying the failed items of a processor."""
    return suggestion(
        ["items", "retry", flow.flow_id, "--processor", processor],
        f"run the failed items of {processor} again now",
        "items.retry",
        flow_id=flow.flow_id,
        processor=processor,
    )


def show_run(run: RunFact) -> Suggestion:
    """Suggest showing a run."""
    does = f"see every attempt of {run.processor} and its errors"
    return suggestion(["runs", "show", run.run_id], does, "runs.detail", run_id=run.run_id)


def resume(pause: PauseFact) -> Suggestion:
    """Suggest lifting a pause."""
    subject = [] if pause.subject is None else [pause.subject]
    return suggestion(
        ["resume", pause.scope, *subject],
        "lift the pause",
        "pauses.resume",
        scope=pause.scope,
        subject=pause.subject,
    )


def complete(flow: FlowFact, phase: str, processor: str) -> Suggestion:
    """Suggest reporting the completion of work that ran outside Penstock."""
    where = [flow.pipeline, flow.partition, processor, "--phase", phase, "--mode", flow.mode]
    return suggestion(
        ["complete", *where, *customer_option(flow.customer)],
        f"report {processor} as done, if it is",
        "flows.complete",
        pipeline_template=flow.pipeline,
        partition=flow.partition,
        processor_name=processor,
        phase=phase,
        processing_mode=flow.mode,
        customer_id=flow.customer,
    )


def worker(pool: str) -> Suggestion:
    """Suggest starting a worker for a pool."""
    more = [] if pool == "default" else ["--pool", pool]
    return suggestion(["worker", "--pipelines", "FILE", *more], "start a worker")


def scheduler() -> Suggestion:
    """Suggest starting a scheduler."""
    return suggestion(START.split()[1:], "start a scheduler")


def cancel(flow: FlowFact) -> Suggestion:
    """Suggest cancelling a flow that a newer generation has replaced."""
    does = f"cancel this flow: generation {flow.newer_generation} has replaced it"
    return suggestion(["flows", "cancel", flow.flow_id], does, "flows.cancel", flow_id=flow.flow_id)


def explain(older: OpenFlowFact) -> Suggestion:
    """Suggest explaining an older flow of the partition that is still open."""
    does = f"see why {older.mode} generation {older.generation} is still open"
    return suggestion(
        ["explain", older.flow_id], does, "diagnostics.explain_flow", flow_id=older.flow_id
    )


def why(flow: FlowFact) -> Suggestion:
    """Suggest the `why` command for a flow."""
    return why_of(flow.flow_id)


def why_of(flow_id: str) -> Suggestion:
    """Suggest the `why` command for a flow id."""
    does = "see what blocks the flow, as a tree"
    return suggestion(["why", flow_id], does, "diagnostics.why_flow", flow_id=flow_id)


def why_config(config_id: str) -> Suggestion:
    """Suggest the `why` command for a config."""
    does = "see what blocks the config, as a tree"
    return suggestion(["why", config_id], does, "diagnostics.why_config", config_id=config_id)


def enable(config_id: str) -> Suggestion:
    """Suggest enabling a config."""
    return suggestion(
        ["configs", "enable", config_id],
        "start runs again by its schedule",
        "configs.update",
        config_id=config_id,
        is_active=True,
    )


def ledger(config_id: str) -> Suggestion:
    """Suggest listing the occurrences of a config that did not start."""
    return suggestion(
        ["configs", "ledger", config_id],
        "list what did not start",
        "configs.occurrences",
        config_id=config_id,
    )


def create_topic(name: str) -> Suggestion:
    """Suggest creating a topic."""
    return suggestion(["topics", "create", name], "create the topic", "topics.create", name=name)


def show_limit(name: str) -> Suggestion:
    """Suggest showing a limit, which lists the holders' leases that can be released."""
    return suggestion(
        ["limits", "show", name], "see its holders and waiters", "limits.get", name=name
    )


def set_concurrency(customer: str) -> Suggestion:
    """Suggest raising the maximum number of a customer's runs."""
    return suggestion(
        ["customers", "set", customer, "--concurrency", "N"],
        "change the maximum",
        "customers.set",
        customer_id=customer,
    )


def pending_runs(customer: str) -> Suggestion:
    """Suggest listing the pending runs of a customer."""
    return suggestion(
        ["runs", "list", "--customer", customer, "--state", "PENDING"],
        "list its pending runs",
        "runs.list_customer",
        customer_id=customer,
        state="PENDING",
    )


def open_dead_letters(customer: str) -> Suggestion:
    """Suggest listing the dead letters of a customer."""
    return suggestion(
        ["dlq", "list", "--customer", customer],
        "list them",
        "dead_letters.list",
        customer_id=customer,
    )


def open_interventions(customer: str) -> Suggestion:
    """Suggest listing the interventions of a customer."""
    return suggestion(
        ["interventions", "list", "--customer", customer],
        "list them",
        "interventions.list",
        customer_id=customer,
    )


def open_limit(name: str) -> Suggestion:
    """Suggest raising the capacity of a limit, for example from 0."""
    return suggestion(
        ["limits", "set", name, "--capacity", "N"], "set its capacity", "limits.declare", name=name
    )
