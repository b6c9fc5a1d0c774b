"""`penstock today`: today's flows and scheduled runs, with their progress."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.core.clock import Micros, from_datetime
from penstock.flows.records import Flow
from penstock.monitoring.today.records import Cohort, Today


@click.command("today", cls=Command)
@click.option("--customer", metavar="ID", help="Only flows and runs of this customer.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True,
              help="Maximum number of flows, and of cohorts.")  # fmt: skip
@click.pass_obj
def today(app: App, customer: str | None, limit: int) -> None:
    """Show the flows and the scheduled runs of today, and their progress.

    The runs that one occurrence of a schedule started are one cohort. Days begin at midnight UTC.
    """
    with app.connect() as client:
        seen = client.views.today(customer=customer, limit=limit)
    app.emit(seen, lambda: _print(seen))


def _print(seen: Today) -> None:
    now = from_datetime(seen.as_of)
    if seen.due_done_percentage is not None:
        click.echo(f"{_done_text(seen.due_done_percentage)} of what is due today is done.")
    if not seen.flows and not seen.cohorts:
        click.echo("Nothing is due today.\nSee what starts next: penstock configs list")
    if seen.flows:
        output.print_table(
            ("FLOW", "STATE", "PIPELINE", "PARTITION", "MODE", "DONE", "ETA"),
            [_flow_cells(flow, now) for flow in seen.flows],
        )
    if seen.cohorts:
        output.print_table(
            ("PIPELINE", "DUE", "EXPECTED", "COMPLETED", "RUNNING", "QUEUED", "RETRYING", "DEAD",
             "CANCELLED", "SKIPPED", "ENDS"),
            [_cohort_cells(one, now) for one in seen.cohorts],
            secondary=_without_counts(seen.cohorts),
        )  # fmt: skip
    if seen.has_more_flows or seen.has_more_cohorts:
        click.echo("There are more: raise --limit, or choose a customer.")
    if seen.is_partial:
        click.echo("Not everything was read: the oldest cohorts or some open runs are missing.")


def _without_counts(cohorts: Sequence[Cohort]) -> list[str]:
    """Return the columns of a table of cohorts that contain only zeros."""
    names = ("skipped", "cancelled", "retrying", "dead", "running", "queued")
    return [name.upper() for name in names if not any(getattr(one, name) for one in cohorts)]


def _done_text(percentage: float) -> str:
    """Return a percentage without decimals; 100 % only if everything is done."""
    return f"{int(percentage)} %"


def _flow_cells(flow: Flow, now: Micros) -> tuple[object, ...]:
    share = flow.progress_percentage
    return (
        flow.flow_id, flow.phase_state or flow.state, flow.pipeline, flow.partition, flow.mode,
        "-" if share is None else f"{share:.0f} %",
        output.format_time_short(flow.ended_at or flow.eta_p50_at, now),
    )  # fmt: skip


def _cohort_cells(one: Cohort, now: Micros) -> tuple[object, ...]:
    return (
        one.pipeline, output.format_time_short(one.occurrence_at, now), one.expected,
        one.completed, one.running, one.queued, one.retrying, one.dead, one.cancelled, one.skipped,
        output.format_time_short(one.ended_at or one.eta_at, now),
    )  # fmt: skip
