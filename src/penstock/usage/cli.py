"""`penstock budgets`, `penstock anomalies` and `penstock pools`."""

from __future__ import annotations

from typing import Any, get_args

import click

from penstock.cli import output
from penstock.cli.app import App, Command, Group, dry_run_option
from penstock.cli.arguments import confirm
from penstock.cli.rows import collect
from penstock.core.records.record import Page
from penstock.usage.records import AnomalyMeasure, Budget, BudgetPeriod, BudgetScope, NewBudget

_SCOPE = click.Choice(get_args(BudgetScope))
_PERIOD = click.option(
    "--per",
    "period",
    type=click.Choice(get_args(BudgetPeriod)),
    default="month",
    show_default=True,
    help="Period of the budget, in UTC.",
)
_LIMIT = click.IntRange(1, 10_000)


@click.group(cls=Group)
def budgets() -> None:
    """Set, list, lift and remove budgets of pipelines and customers."""


@budgets.command("list", cls=Command)
@click.pass_obj
def list_(app: App) -> None:
    """List budgets with their use in the current period."""
    with app.connect() as client:
        found = client.budgets.list()
        now = client.now()
    app.emit_page(
        Page(items=list(found), next_cursor=None),
        {
            "SCOPE": lambda one: one.scope,
            "SUBJECT": lambda one: one.subject,
            "PERIOD": lambda one: one.period,
            "USED": lambda one: f"{one.used:,.2f}",
            "AMOUNT": lambda one: f"{one.amount:,.2f}",
            "PERCENT": lambda one: f"{one.used_percentage:.0f} %",
            "STATE": lambda one: one.state,
            "HARD STOP": lambda one: "yes" if one.is_hard else "",
            "UNTIL": lambda one: output.format_time_short(one.period_end, now),
        },
        empty="No budgets. Set one: penstock budgets set pipeline NAME 100 --per month",
    )


@budgets.command("set", cls=Command)
@click.argument("scope", type=_SCOPE)
@click.argument("subject")
@click.argument("amount", type=click.FloatRange(min=0, min_open=True))
@_PERIOD
@click.option("--warn", type=click.FloatRange(1, 100), default=80.0, show_default=True,
              metavar="PERCENT", help="Percentage of the amount at which to warn.")  # fmt: skip
@click.option("--hard-stop", is_flag=True, help="Hold runs back once the amount is used up.")
@dry_run_option
@click.pass_obj
def set_(app: App, /, scope: Any, subject: str, amount: float, **given: Any) -> None:
    """Set the budget of a pipeline or customer, in the unit of its processors' declared rates."""
    wanted = NewBudget(
        scope=scope, subject=subject, amount=amount, period=given["period"],
        warn_percentage=given["warn"], is_hard=given["hard_stop"],
    )  # fmt: skip
    with app.connect() as client:
        made = client.budgets.set(wanted)
    app.emit(made, lambda: _print(made))


@budgets.command("lift", cls=Command)
@click.argument("scope", type=_SCOPE)
@click.argument("subject")
@_PERIOD
@click.option("--reason", default="", help="Reason, recorded in the journal.")
@dry_run_option
@click.pass_obj
def lift(app: App, scope: Any, subject: str, *, period: Any, reason: str) -> None:
    """Lift a budget until its period ends, and resume its runs."""
    with app.connect() as client:
        made = client.budgets.lift(scope, subject, period=period, reason=reason)
    app.emit(made, lambda: _print(made))


@budgets.command("remove", cls=Command)
@click.argument("scope", type=_SCOPE)
@click.argument("subject")
@_PERIOD
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def remove(app: App, scope: Any, subject: str, *, period: Any, yes: bool) -> None:
    """Remove a budget, and resume the runs that it held back."""
    if not (yes or app.is_dry_run):
        confirm(f"Remove the budget of {scope} {subject}?")
    with app.connect() as client:
        done = client.budgets.remove(scope, subject, period=period)
    app.emit(done, lambda: click.echo(f"The budget of {scope} {subject} was removed."))


def _print(one: Budget) -> None:
    stop = ", hard stop" if one.is_hard else ""
    click.echo(
        output.escape_control(
            f"{one.scope} {one.subject}: {one.used:,.2f} of {one.amount:,.2f} per {one.period} "
            f"({one.used_percentage:.0f} %){stop}: {one.state}"
        )
    )


@click.command("anomalies", cls=Command)
@click.option("--customer", metavar="ID", help="Only runs of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only processors of this pipeline.")
@click.option("--measure", type=click.Choice(get_args(AnomalyMeasure)), metavar="NAME",
              help=f"One of {', '.join(get_args(AnomalyMeasure))}.")  # fmt: skip
@click.option("--open", "only_open", is_flag=True,
              help="Only processors whose newest execution is out of range.")  # fmt: skip
@click.option("--limit", type=_LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def anomalies(app: App, /, *, limit: int, **given: Any) -> None:
    """List executions outside the range of earlier ones, with that history."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.anomalies.list(**given, limit=n, cursor=cursor), limit
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "AT": lambda one: output.format_time_short(one.at, now),
            "CUSTOMER": lambda one: one.customer,
            "MEASURE": lambda one: one.measure,
            "RUN": lambda one: one.run_id,
            "OPEN": lambda one: "yes" if one.ended_at is None else "",
            "WHAT": lambda one: one.text,
        },
        empty="No anomalies: every execution is within the range of earlier ones.",
    )


@click.command("pools", cls=Command)
@click.pass_obj
def pools(app: App) -> None:
    """Show the load of pools and the number of workers they need."""
    with app.connect() as client:
        found = client.pools.list()
    app.emit_page(
        Page(items=list(found), next_cursor=None),
        {
            "POOL": lambda one: one.pool,
            "READY": lambda one: one.ready_runs,
            "RUNNING": lambda one: one.running_runs,
            "WORKERS": lambda one: one.workers,
            "DESIRED": lambda one: one.desired_workers,
            "CONCURRENCY": lambda one: one.concurrency,
            "MEAN": lambda one: "" if one.mean is None else output.format_span(one.mean),
            "PER MINUTE": lambda one: f"{one.runs_per_minute:.1f}",
        },
        empty="No pools: register a pipeline first.",
    )
