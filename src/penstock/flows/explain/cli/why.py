"""`penstock why`: the causes that keep a flow, run, config, message or subscription waiting."""

from __future__ import annotations

import contextlib

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import (
    CONFIG_PREFIX,
    FLOW_PREFIX,
    RUN_PREFIX,
    flow_id,
    missing_partition_error,
    run_id,
)
from penstock.client import UseCaseGroups
from penstock.core.clock import from_datetime
from penstock.core.errors import InvalidInput, NotFound
from penstock.flows.explain.cli.explain import print_explanation
from penstock.flows.explain.records import CauseEntry, CauseTree

CLEARS_TEXT = {"event": "clears on an event", "person": "needs a person", "time": "", "never": ""}


@click.command("why", cls=Command)
@click.argument("thing", metavar="PIPELINE|FLOW|RUN|CONFIG|MESSAGE|SUBSCRIPTION|CUSTOMER")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--mode", metavar="NAME", help="Mode of the flow; any mode if omitted.")
@click.pass_obj
def why(
    app: App,
    thing: str,
    partition: str | None,
    phase: str | None,
    customer: str | None,
    mode: str | None,
) -> None:
    r"""Show why a flow, run, config, message, subscription or customer waits, as a tree.

    Each cause shows when it can clear and, where possible, the command that clears it. A pipeline
    and a partition name the newest flow; everything else is named without a partition.

    \b
    penstock why nba 2025-12-31            # a flow; its id works, too
    penstock why nba 2025-12-31 predict    # one of its phases
    penstock why run_7h2kq0v3              # a run
    penstock why cfg_5m7t0c2d              # a config
    penstock why 4711                      # a message
    penstock why rosters-to-table          # a subscription
    penstock why acme                      # a customer
    """
    with app.connect() as client:
        if thing.startswith(RUN_PREFIX) and partition is None:
            proof = client.diagnostics.why_run(run_id(thing))
        elif thing.startswith(FLOW_PREFIX) and phase is None:
            proof = client.diagnostics.why_flow(flow_id(thing), partition)
        elif thing.startswith(CONFIG_PREFIX) and partition is None:
            proof = client.diagnostics.why_config(thing)
        elif thing.isdecimal() and partition is None:
            proof = client.topics.why(thing)
        elif partition is None:
            proof = _subscription(client, thing, customer)
        else:
            found = client.diagnostics.explain(thing, partition, customer=customer, mode=mode)
            if found.has_runs_only:
                app.emit(found, lambda: print_explanation(found))
                return
            if found.flow is None:
                raise NotFound("flow", f"{thing} {partition}")
            proof = client.diagnostics.why_flow(found.flow.flow_id, phase)
    app.emit(proof, lambda: print_causes(proof))


def _subscription(client: UseCaseGroups, name: str, customer: str | None) -> CauseTree:
    """Return why a subscription or customer waits; a pipeline alone, without a partition, fails."""
    try:
        return client.subscriptions.why(name, customer=customer)
    except (NotFound, InvalidInput):
        pass
    if not name.startswith("dl_"):
        try:
            client.views.pipeline(name)
        except (NotFound, InvalidInput):
            with contextlib.suppress(NotFound, InvalidInput):
                return client.diagnostics.why_customer(name)
            fix = "See: penstock subscriptions list, penstock flows list, penstock runs list."
            expected = "a flow, run, config, message, subscription, customer or pipeline"
            raise InvalidInput("thing", expected, name, fix) from None
    raise missing_partition_error(name)


def print_causes(proof: CauseTree) -> None:
    """Print the tree of causes as text."""
    now = from_datetime(proof.as_of)
    causes = proof.causes
    open_at: dict[int, bool] = {}
    for index, cause in enumerate(causes):
        depth = cause.depth
        later = [c.depth for c in causes[index + 1 :]]
        ends = next((d for d in later if d <= depth), -1)
        open_at[depth] = ends == depth
        stem = "".join("│  " if open_at.get(level) else "   " for level in range(1, depth))
        branch = "" if depth == 0 else ("├─ " if open_at[depth] else "└─ ")
        note = _note(cause, now)
        click.echo(f"{stem}{branch}{output.escape_control(cause.text)}{note}")
        if cause.action is not None:
            deeper = "" if depth == 0 else ("│  " if open_at[depth] else "   ")
            click.echo(f"{stem}{deeper}   → {output.escape_control(cause.action.command)}")
    if proof.earliest_at is not None:
        click.echo(f"Not before {output.format_time(proof.earliest_at, now)}.")


def _note(cause: CauseEntry, now: int) -> str:
    """Return when or how a leaf cause can clear; empty for a cause that has further causes."""
    if cause.kind in (
        "flow",
        "phase",
        "processor",
        "run",
        "config",
        "message",
        "subscription",
        "customer",
    ):
        return ""
    if cause.earliest_at is not None:
        return f"  [not before {output.format_time_short(cause.earliest_at, now)}]"
    text = CLEARS_TEXT[cause.clears]
    return f"  [{text}]" if text else ""
