"""`penstock replay`, `penstock cancel` and `penstock slowest`: repeat, stop and find slow work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import CONFIG, JSON, confirm, parse_pairs, parse_when
from penstock.core.clock import to_datetime
from penstock.core.errors import InvalidInput
from penstock.recovery.cli.impact import print_impact
from penstock.recovery.records import CancelRequest, CancelStep, FlowReplay, ReplayedFlow


class _Replay(Command):
    """Suggests --from for a phase that is passed as an argument, as `penstock trigger` takes it."""

    def hint_at_extra(self, extra: Sequence[str]) -> str:
        """Return the option for a phase that was given as an argument."""
        return f"To start with a phase, add --from {extra[0]}." if len(extra) == 1 else ""


@click.command("replay", cls=_Replay)
@click.argument("pipeline")
@click.argument("partition")
@click.option("--from", "phase", metavar="PHASE",
              help="Phase to start with. Default: the entry phases.")  # fmt: skip
@click.option("--processor", "processors", multiple=True, metavar="NAME",
              help="Run only this processor of its phase; may be repeated.")  # fmt: skip
@click.option("--entity", "entities", multiple=True, metavar="KIND:ID",
              help="Entity that incremental processors receive; may be repeated.")  # fmt: skip
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--config-id", type=CONFIG, metavar="CFG",
              help="Config that the flow belongs to; required if several are active.")  # fmt: skip
@click.option(
    "--mode",
    metavar="NAME",
    help="Mode of the flow. Default: the mode of the partition's newest flow.",
)
@click.option("--force", is_flag=True,
              help="Repeat completed work; supersede work in progress.")  # fmt: skip
@click.option("--no-downstream", is_flag=True, help="Do not continue with later phases.")
@click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="Set one parameter.")
@click.option("--parameters", type=JSON, metavar="JSON|@FILE", help="Parameters as one object.")
@click.option("--priority", type=click.IntRange(1, 10), default=5, show_default=True,
              help="Priority of its runs.")  # fmt: skip
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would run; change nothing.")
@click.pass_obj
def replay(app: App, /, **given: Any) -> None:
    """Run a partition again, starting at a phase, in a new generation.

    Earlier phases are inherited. Without --force, nothing that has completed is repeated.
    The command shows what will run, what will be overwritten and how long it will take, and asks
    for confirmation.

    Items of a processor that fans out are repeated with `penstock items retry`.
    """
    wanted = _wanted(given)
    with app.connect() as client:
        if wanted.is_dry_run or not (given["yes"] or app.is_json):
            seen = client.recovery.replay(_wanted({**given, "dry_run": True}))
            if wanted.is_dry_run:
                app.emit(seen, lambda: print_impact(seen.impact, is_dry_run=True))
                return
            print_impact(seen.impact, is_dry_run=False)
            confirm("Replay it?")
        made = client.recovery.replay(wanted)
    app.emit(made, lambda: _print_replayed(made))


def _wanted(given: dict[str, Any]) -> FlowReplay:
    parameters = {**(given["parameters"] or {}), **parse_pairs(given["params"], "param")}
    return FlowReplay(
        pipeline=given["pipeline"],
        partition=given["partition"],
        phase=given["phase"],
        processors=list(given["processors"]),
        entities=_entities(given["entities"]) or None,
        customer=given["customer"],
        config=given["config_id"],
        mode=given["mode"],
        force=given["force"],
        no_downstream=given["no_downstream"],
        parameters=parameters or None,
        priority=given["priority"],
        reason=given["reason"],
        is_dry_run=given["dry_run"],
    )


def _entities(texts: tuple[str, ...]) -> dict[str, list[str | int]]:
    found: dict[str, list[str | int]] = {}
    for text in texts:
        kind, colon, one = text.partition(":")
        if not (kind and colon and one):
            raise InvalidInput("entity", "KIND:ID such as players:1630567", text)
        found.setdefault(kind, []).append(int(one) if one.isdecimal() else one)
    return found


def _print_replayed(made: ReplayedFlow) -> None:
    flow = made.flow
    assert flow is not None
    started = output.plural(len(made.run_ids), "run")
    click.echo(f"{flow.pipeline} {flow.partition} ({flow.mode}) runs again: {flow.flow_id}, "
               f"generation {flow.generation}; {started} started.")  # fmt: skip
    if made.superseded:
        click.echo(f"Superseded: {', '.join(made.superseded)}.")
    click.echo(f"Follow it: penstock explain {flow.flow_id}")


@click.command("cancel", cls=Command)
@click.option("--customer", metavar="ID", help="Only work of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only work of this pipeline.")
@click.option("--from", "first", metavar="PARTITION", help="Only this partition and later ones.")
@click.option("--to", "last", metavar="PARTITION", help="Only this partition and earlier ones.")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be cancelled; change nothing.")
@click.pass_obj
def cancel(app: App, /, **given: Any) -> None:
    """Cancel all open flows and single runs of a customer, a pipeline or a range of partitions.

    Pending runs are cancelled, running ones stop at their next heartbeat. To stop new work as well,
    pause the customer or pipeline first.
    """
    filters = {name: given[name] for name in ("customer", "pipeline", "first", "last", "reason")}
    with app.connect() as client:
        seen = client.recovery.cancel(CancelRequest(**filters, is_dry_run=True))
        if given["dry_run"]:
            app.emit(seen, lambda: print_impact(seen.impact, is_dry_run=True))
            return
        if not given["yes"] and not app.is_json and seen.left:
            print_impact(seen.impact, is_dry_run=False)
            confirm("Cancel them?")
        flows: list[str] = []
        runs: list[str] = []
        stopped, ended, many = 0, 0, seen.left
        with click.progressbar(length=many, label="Cancelling", hidden=app.is_json) as bar:
            while len(flows) + len(runs) + ended < many:
                step = client.recovery.cancel(CancelRequest(**filters))
                flows += step.flows
                runs += step.runs
                stopped += step.stopped
                ended += step.ended
                done_now = len(step.flows) + len(step.runs) + step.ended
                bar.update(done_now)
                if not done_now:
                    break
    done = CancelStep(
        is_dry_run=False, impact=seen.impact, flows=flows, runs=runs, stopped=stopped,
        ended=ended, left=0,
    )  # fmt: skip
    counts = f"{output.plural(len(flows), 'flow')} and {output.plural(len(runs), 'single run')}"
    text = f"{counts} cancelled; {output.plural(stopped, 'run')} of flows cancelled or stopping."
    if ended:
        text += f" {ended} had ended by then."
    app.emit(done, lambda: click.echo(text))


@click.command("slowest", cls=Command)
@click.option("--customer", metavar="ID", help="Only runs of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only processors of this pipeline.")
@click.option("--since", metavar="WHEN",
              help="Only runs that ended since this ISO time or age; default: 7d.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def slowest(app: App, /, *, since: str | None, **given: Any) -> None:
    """List processors by how long their successful runs take, slowest first."""
    with app.connect() as client:
        began = parse_when(since, "since", client.now() if since else 0)
        at = None if began is None else to_datetime(began)
        page = client.recovery.slowest(**given, since=at)
    app.emit_page(
        page,
        {
            "PIPELINE": lambda one: one.pipeline,
            "PHASE": lambda one: one.phase,
            "PROCESSOR": lambda one: one.processor,
            "RUNS": lambda one: one.runs,
            "P50": lambda one: output.format_span(one.p50),
            "P95": lambda one: output.format_span(one.p95),
            "LONGEST": lambda one: output.format_span(one.longest),
            "TOTAL": lambda one: output.format_span(one.total),
        },
        empty="No successful runs in this period.",
    )
