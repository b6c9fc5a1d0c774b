"""`penstock schedules`: show the load map, and spread starts with jitter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.core.clock import format_duration, parse_duration
from penstock.core.records.record import minutes

if TYPE_CHECKING:
    from penstock.schedules.load_map.records import JitterPlan, LoadMap

BAR = 40


@click.group(cls=Group)
def schedules() -> None:
    """Show scheduled starts; spread those of busy minutes."""


@schedules.command("load")
@click.option("--hours", type=click.IntRange(1, 168), default=24, show_default=True,
              help="Length of the window.")  # fmt: skip
@click.option("--bucket", type=click.IntRange(1, 1440), default=60, show_default=True,
              metavar="MINUTES", help="Minutes that each line covers.")  # fmt: skip
@click.option("--pool", metavar="NAME", help="Only runs of this pool.")
@click.option("--pipeline", metavar="NAME", help="Only configs of this pipeline.")
@click.option("--customer", metavar="ID", help="Only configs of this customer.")
@click.pass_obj
def load(app: App, /, **given: Any) -> None:
    """Show the scheduled starts of the coming hours, by pool and pipeline."""
    with app.connect() as client:
        found = client.schedules.load(**given)
    app.emit(found, lambda: _print_map(app, found))


@schedules.command("jitter")
@click.option("--above", type=click.IntRange(0), default=100, show_default=True, metavar="N",
              help="Spread configs that start in minutes with more starts than this.")  # fmt: skip
@click.option("--tolerance", metavar="DURATION",
              help="Tolerance, such as 15m, for customers that have none.")  # fmt: skip
@click.option("--pipeline", metavar="NAME", help="Only configs of this pipeline.")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the audit trail.")
@dry_run_option
@click.pass_obj
def jitter(app: App, above: int, tolerance: str | None, pipeline: str | None, reason: str) -> None:
    """Spread the starts of busy minutes, within the tolerance of each customer.

    A config's delay is always the same. Set tolerances with `penstock customers set ID
    --start-tolerance 15m`; try `--dry-run` first.
    """
    late = None if tolerance is None else minutes(parse_duration(tolerance, "--tolerance"))
    with app.connect() as client:
        plan = client.schedules.jitter(
            above=above, tolerance=late, pipeline=pipeline, reason=reason
        )
    app.emit(plan, lambda: _print_plan(app, plan))


def _print_map(app: App, found: LoadMap) -> None:
    if not found.starts:
        app.hint("Nothing is scheduled in this window. Create a schedule: penstock configs create")
        return
    at = output.format_time(found.peak_at)
    click.echo(
        f"{output.plural(found.starts, 'start')} from {output.format_time(found.since)}, at most "
        f"{found.peak:,} in a minute ({at})"
    )
    output.print_table(
        ("POOL", "PIPELINE", "STARTS", "PEAK/MIN", "AT", "MEAN DURATION"),
        [
            (one.pool, one.pipeline, f"{one.starts:,}", f"{one.peak:,}",
             output.format_time(one.peak_at),
             output.format_span(one.mean_duration))
            for one in found.series
        ],
    )  # fmt: skip
    most = max(one.starts for one in found.buckets)
    for one in found.buckets:
        bar = "#" * -(-one.starts * BAR // most)
        when = output.format_time(one.at)[:16]
        click.echo(f"{when}Z  {one.starts:>9,}  {one.running:>9,.1f} running  {bar}")
    if found.peak > 100:
        app.hint("Spread busy minutes: penstock schedules jitter --dry-run")


def _print_plan(app: App, plan: JitterPlan) -> None:
    after = output.format_time(plan.peak_at_after)
    click.echo(
        f"peak  {plan.peak_before:,} starts in a minute ({output.format_time(plan.peak_at_before)})"
        f" -> {plan.peak_after:,} ({after})"
    )
    late = format_duration(parse_duration(plan.delay_max))
    click.echo(
        f"{output.plural(plan.moved, 'config')} of {output.plural(plan.customers, 'customer')} "
        f"spread, delayed by at most {late}"
    )
    for one in plan.examples[:5]:
        delay = format_duration(parse_duration(one.delay))
        click.echo(f"  {one.config_id}  {one.customer}  starts {delay} later")
    if plan.without_tolerance:
        app.hint(
            f"{output.plural(plan.without_tolerance, 'config')} not moved: their customers "
            "have no tolerance. Pass --tolerance, or: penstock customers set ID "
            "--start-tolerance 15m"
        )
