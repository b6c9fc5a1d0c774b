"""`penstock trigger`: open a flow manually, or start one at a given phase."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import CONFIG, JSON, parse_pairs
from penstock.client import UseCaseGroups
from penstock.core.errors import PenstockError
from penstock.flows.explain.records import CauseEntry
from penstock.flows.records import FlowPreview, FlowRequest, FlowTrigger


@click.command("trigger", cls=Command)
@click.argument("pipeline")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option(
    "--mode",
    metavar="NAME",
    help="Mode of the flow. Default: the mode of the partition's newest flow, else `manual`.",
)
@click.option(
    "--config-id",
    type=CONFIG,
    metavar="CFG",
    help="Config that the flow belongs to; required if several are active.",
)
@click.option("--backfill", is_flag=True, help="Use mode `backfill`, for past data.")
@click.option("--force", is_flag=True, help="Open a new generation even if a flow exists.")
@click.option(
    "--keep-older",
    is_flag=True,
    help="Keep older open generations running; by default they are superseded.",
)
@click.option("--no-downstream", is_flag=True, help="Do not continue with later phases.")
@click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="Set one parameter.")
@click.option("--parameters", type=JSON, metavar="JSON|@FILE", help="Parameters as one object.")
@click.option(
    "--priority",
    type=int,
    default=5,
    show_default=True,
    help="Priority from 1 (last) to 10 (first).",
)
@click.option("--correlation-id", metavar="TEXT", help="Correlation id; generated if omitted.")
@click.option("--dry-run", is_flag=True, help="Show what would be started; change nothing.")
@click.pass_obj
def trigger(app: App, /, **given: Any) -> None:
    r"""Open a flow for a partition, or start one at a given phase.

    With PHASE a new generation starts at that phase. Gates still apply: phases whose gate returns
    WAIT do not start, and `penstock explain` shows what they wait for. A new generation supersedes
    older open ones of the same partition and mode; the command names them first.

    Preview the effect first:

    \b
    penstock trigger nba 2025-12-31 predict --dry-run
    """
    wanted = _wanted(given)
    with app.connect() as client:
        if given["dry_run"]:
            preview = client.previews.trigger(wanted)
            app.emit(preview, lambda: _print_preview(preview))
            return
        older = client.previews.trigger(wanted).superseded
        if older and not app.is_json:
            click.echo(f"Superseding {', '.join(older)}: it starts no more phases.", err=True)
        opened = client.flows.trigger(wanted)
        pause = None if app.is_json else _pause_of(client, opened)
    app.emit(opened, lambda: _print_opened(opened, pause))


def _wanted(given: dict[str, Any]) -> FlowRequest:
    parameters = {**(given["parameters"] or {}), **parse_pairs(given["params"], "param")}
    phase = given["phase"]
    return FlowRequest(
        pipeline=given["pipeline"],
        partition=given["partition"],
        phases=[] if phase is None else [part for part in phase.split(",") if part],
        customer=given["customer"],
        mode=given["mode"],
        backfill=given["backfill"],
        config=given["config_id"],
        force=given["force"],
        keep_older=given["keep_older"],
        no_downstream=given["no_downstream"],
        parameters=parameters or None,
        priority=given["priority"],
        correlation_id=given["correlation_id"],
    )


def _print_preview(preview: FlowPreview) -> None:
    click.echo(output.escape_control(preview.text))
    words = {"first": "first, if its gate allows", "follows": "follows",
             "skipped": "skipped", "inherited": "inherited as it is"}  # fmt: skip
    output.print_table(
        ("PHASE", "EFFECT", "PROCESSORS"),
        [(one.phase, words[one.fate], ", ".join(one.processors)) for one in preview.phases],
    ) if preview.phases else None


def _pause_of(client: UseCaseGroups, opened: FlowTrigger) -> CauseEntry | None:
    """Return the pause that holds the new runs, which are all of one config; None if none does."""
    if opened.run_ids:
        with contextlib.suppress(PenstockError):  # the flow is open even if this read fails
            causes = client.diagnostics.why_run(opened.run_ids[0]).causes
            return next((cause for cause in causes if cause.kind == "pause"), None)
    return None


def _print_opened(opened: FlowTrigger, pause: CauseEntry | None) -> None:
    flow = opened.flow
    where = f"{flow.pipeline} {flow.partition} ({flow.mode})"
    if not opened.is_new:
        click.echo(f"{where} already exists: {flow.flow_id}, generation "
                   f"{flow.generation}, {flow.state}. Nothing was started.")  # fmt: skip
        click.echo("Run it again: --force   ·   start at a phase: add PHASE")
        return
    runs = output.plural(len(opened.run_ids), "run")
    begun = f"{runs} started, later phases follow"
    action = None if pause is None else pause.action
    if pause is not None:
        which = "" if action is None else f": {output.escape_control(pause.text)}"
        begun = f"{runs} created, held by a pause{which}"
    click.echo(f"{where} opened: {flow.flow_id}, generation {flow.generation}; {begun}.")
    if action is not None:
        click.echo(f"Start them: {output.escape_control(action.command)}")
    if flow.config_id is not None:
        named = f"{flow.config_id} ({flow.customer}, {flow.pipeline})"
        click.echo(f"Uses config {named}, with its parameters and time limits.")
    if opened.superseded:
        click.echo(f"Superseded: {', '.join(opened.superseded)}.")
    click.echo(f"Follow it: penstock explain {flow.flow_id}")
