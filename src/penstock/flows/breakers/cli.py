"""`penstock breakers`: list, explain and reset the breakers of phases."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.rows import collect
from penstock.flows.breakers.records import BreakerDetail, BreakerTarget


@click.group(cls=Group)
def breakers() -> None:
    """List, explain and reset the breakers that stop a phase after five failures."""


@breakers.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="Include closed breakers that have counted failures."
)
@click.option("--pipeline", metavar="NAME", help="Only breakers of this pipeline.")
@click.option("--partition", metavar="TEXT", help="Only breakers of this partition.")
@click.option("--phase", metavar="NAME", help="Only breakers of this phase.")
@click.option("--customer", metavar="ID", help="Only breakers of this customer.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, /, *, everything: bool, limit: int, **given: Any) -> None:
    """List open breakers."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.breakers.list(
                state="all" if everything else "open", **given, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "CUSTOMER": lambda one: one.customer,
            "PIPELINE": lambda one: one.pipeline,
            "PARTITION": lambda one: one.partition,
            "PHASE": lambda one: one.phase,
            "STATE": lambda one: one.state,
            "FAILURES": lambda one: one.failures,
            "OPENED": lambda one: output.format_time_short(one.opened_at, now),
            "NEXT TRIAL": lambda one: output.format_time_short(one.next_trial_at, now),
        },
        empty="No breaker has counted failures." if everything else "No breaker is open.",
    )


@breakers.command("show")
@click.argument("pipeline")
@click.argument("partition")
@click.argument("phase")
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.pass_obj
def show(app: App, pipeline: str, partition: str, phase: str, customer: str | None) -> None:
    """Explain a breaker: its failures, and the flows that it blocks."""
    with app.connect() as client:
        found = client.breakers.get(pipeline, partition, phase, customer=customer)
        now = client.now()
    app.emit(found, lambda: _print(found, now))


def _print(found: BreakerDetail, now: int) -> None:
    one = found.breaker
    click.echo(output.escape_control(f"{one.pipeline} {one.partition} {one.phase} {one.state}"))
    click.echo(found.text)
    for failure in found.recent:
        at = output.format_time_short(failure.at, now)
        who = f" {failure.processor}" if failure.processor else ""
        line = f"  {at}  {failure.subject}{who}: {output.first_line(failure.text)}"
        click.echo(output.escape_control(line))
    if found.blocked_flows:
        click.echo(f"Holds up: {', '.join(found.blocked_flows)}")
    if found.command is not None:
        click.echo(output.escape_control(f"Reset it: {found.command}"))


@breakers.command("reset")
@click.argument("pipeline")
@click.argument("partition")
@click.argument("phase")
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the audit trail.")
@dry_run_option
@click.pass_obj
def reset(app: App, /, **given: Any) -> None:
    """Close a breaker; the gates that it blocked are evaluated again immediately."""
    with app.connect() as client:
        done = client.breakers.reset(BreakerTarget(**given))
    one, count = done.breaker, len(done.flow_ids)

    def print_text() -> None:
        what = output.escape_control(f"{one.pipeline} {one.partition} {one.phase}")
        click.echo(f"The breaker of {what} is closed; it had counted {one.failures} failures.")
        word = "flow is" if count == 1 else "flows are"
        click.echo(f"{count} open {word} evaluated again.")

    app.emit(done, print_text)
