"""`penstock trigger`: open a flow, or start one at a phase, by hand."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import JSON, pairs
from penstock.cli.backends.protocol import Shape


@click.command("trigger", cls=Command)
@click.argument("pipeline")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@click.option("--customer", metavar="ID", help="Whose; the default customer unless said.")
@click.option("--mode", metavar="NAME", help="The mode; manual unless said.")
@click.option("--backfill", is_flag=True, help="Past data: mode backfill.")
@click.option("--force", is_flag=True, help="Open the next generation although there is a flow.")
@click.option("--no-downstream", is_flag=True, help="Do not go on to later phases.")
@click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="A parameter.")
@click.option("--parameters", type=JSON, metavar="JSON|@FILE", help="Parameters as JSON.")
@click.option("--priority", type=int, default=5, show_default=True, help="1 to 10, 10 first.")
@click.option("--correlation-id", metavar="TEXT", help="What it belongs to.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.pass_obj
def trigger(app: App, /, **given: Any) -> None:
    """Open a flow for a partition, or start one at a phase.

    With PHASE it starts there, in a new generation. Gates decide as always: a trigger starts what
    may start, and `penstock explain` tells of what may not.

    See what would happen first: `penstock trigger nba 2025-12-31 predict --dry-run`.
    """
    wanted = _wanted(given)
    with app.use_cases() as cases:
        if given["dry_run"]:
            preview = cases.flows.preview(wanted)
            app.emit(preview, lambda: _print_preview(preview))
            return
        opened = cases.flows.trigger(wanted)
    app.emit(opened, lambda: _print_opened(opened))


def _wanted(given: dict[str, Any]) -> Shape:
    parameters = {**(given["parameters"] or {}), **pairs(given["params"], "param")}
    phase = given["phase"]
    return {
        "pipeline_template": given["pipeline"],
        "partition": given["partition"],
        "phases": [] if phase is None else [part for part in phase.split(",") if part],
        "customer_id": given["customer"],
        "mode": given["mode"],
        "backfill": given["backfill"],
        "force": given["force"],
        "no_downstream": given["no_downstream"],
        "parameters": parameters or None,
        "execution_priority": given["priority"],
        "correlation_id": given["correlation_id"],
    }


def _print_preview(preview: Shape) -> None:
    click.echo(output.printable(preview["text"]))
    words = {"first": "its gate is asked first", "follows": "follows", "skipped": "left out",
             "inherited": "taken over as it is"}  # fmt: skip
    output.table(
        ("PHASE", "WHAT", "PROCESSORS"),
        [
            (one["phase"], words[one["fate"]], ", ".join(one["processors"]))
            for one in preview["phases"]
        ],
    ) if preview["phases"] else None


def _print_opened(opened: Shape) -> None:
    flow = opened["flow"]
    where = f"{flow['pipeline_template']} {flow['partition']} ({flow['mode']})"
    if not opened["is_new"]:
        click.echo(f"{where} is there already: {flow['flow_id']}, generation "
                   f"{flow['generation']}, {flow['state']}. Nothing was started.")  # fmt: skip
        click.echo("To run it again: --force   ·   to start at a phase: name it")
        return
    started = output.plural(len(opened["run_ids"]), "run")
    click.echo(f"{where} opened: {flow['flow_id']}, generation {flow['generation']}; {started} "
               "started, the rest follows.")  # fmt: skip
    click.echo(f"See: penstock explain {flow['flow_id']}")
