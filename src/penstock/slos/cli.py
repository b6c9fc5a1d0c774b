"""`penstock slo`: service levels, their error budgets, and breaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from penstock.cli import output
from penstock.cli.app import App, Command, Group
from penstock.cli.arguments import parse_when
from penstock.cli.rows import collect
from penstock.core.clock import SECOND, format_duration, to_datetime
from penstock.core.records.record import Page
from penstock.slos.records import BreachKind, Measure, Slo

_LIMIT = click.IntRange(1, 10_000)


def _filters(function: Any) -> Any:
    """Add the options that `list` and `show` share."""
    for option in reversed(
        (
            click.option("--customer", metavar="ID", help="Only results of this customer."),
            click.option("--mode", metavar="NAME", help="Only this mode."),
            click.option("--phase", metavar="NAME", help="Only this phase."),
            click.option("--measure", type=click.Choice(get_args(Measure)), metavar="NAME",
                         help=f"One of {', '.join(get_args(Measure))}."),
            click.option("--days", type=click.IntRange(1, 90), default=28, show_default=True,
                         help="Number of days to count."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


@click.group(cls=Group)
def slo() -> None:
    """Show service levels: targets, error budgets, burn rates, breaches."""


@slo.command("list", cls=Command)
@click.option("--pipeline", metavar="NAME", help="Only this pipeline.")
@_filters
@click.option("--limit", type=_LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, *, limit: int, **given: Any) -> None:
    """List service levels with their error budgets."""
    app.emit_page(
        _read(app, limit, given),
        {
            "PIPELINE": lambda one: one.pipeline,
            "MODE": lambda one: one.mode or "",
            "PHASE": lambda one: one.phase or "",
            "MEASURE": lambda one: one.measure,
            "TARGET": target_text,
            "OBJECTIVE": lambda one: f"{one.objective_percentage:g} %",
            "MET": lambda one: one.met,
            "MISSED": lambda one: one.missed,
            "BUDGET LEFT": lambda one: _percent(one.budget_left),
            "BURN": lambda one: "" if one.burn_rate is None else f"{one.burn_rate:.1f}",
            "P90": lambda one: output.format_span(one.p90) if one.p90 is not None else "",
        },
        empty="No service levels yet: the scheduler declares them for registered pipelines.",
    )


@slo.command("show", cls=Command)
@click.argument("pipeline")
@_filters
@click.pass_obj
def show(app: App, /, **given: Any) -> None:
    """Show the service levels of a pipeline with their newest results."""
    page = _read(app, 500, given)
    app.emit(page, lambda: _print(app, page))


@slo.command("breaches", cls=Command)
@click.option("--pipeline", metavar="NAME", help="Only breaches of this pipeline.")
@click.option("--customer", metavar="ID", help="Only breaches of this customer.")
@click.option("--kind", type=click.Choice(get_args(BreachKind)), metavar="KIND",
              help=f"One of {', '.join(get_args(BreachKind))}.")  # fmt: skip
@click.option("--since", metavar="WHEN", help="Only breaches since this ISO time or age (2h, 3d).")
@click.option("--limit", type=_LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def breaches(app: App, /, *, limit: int, since: str | None, **given: Any) -> None:
    """List breaches, newest first; those of the last 28 days unless --since is given.

    A run breaches its SLA when it starts too late, or when the threshold passes before it starts.
    """
    with app.connect() as client:
        now = client.now()
        at = parse_when(since, "since", now)
        started = None if at is None else to_datetime(at)
        page = collect(
            lambda n, cursor: client.slos.breaches(**given, since=started, limit=n, cursor=cursor),
            limit,
        )
    app.emit_page(
        page,
        {
            "KIND": lambda one: one.kind,
            "SUBJECT": lambda one: one.subject,
            "CUSTOMER": lambda one: one.customer,
            "PIPELINE": lambda one: one.pipeline,
            "MODE": lambda one: one.mode or "",
            "PHASE": lambda one: one.phase or "",
            "PARTITION": lambda one: one.partition or "",
            "EXPECTED": lambda one: output.format_time_short(one.expected_by, now),
            "MINUTES": lambda one: f"{one.late.total_seconds() / 60:.1f}",
            "STATE": lambda one: one.state if one.actual_at else f"{one.state} (open)",
        },
        empty="No breaches.",
    )


def target_text(one: Slo) -> str:
    """Return a target with its unit."""
    if one.target is None:
        return ""
    if one.measure == "latency":
        return format_duration(int(one.target * SECOND))
    return f"{one.target:g} %" if one.measure == "completeness" else f"{one.target:g}"


def _read(app: App, limit: int, given: dict[str, Any]) -> Page[Slo]:
    with app.connect() as client:
        read: Callable[[int, str | None], Page[Slo]] = lambda n, cursor: client.slos.list(  # noqa: E731
            **given, limit=n, cursor=cursor
        )
        return collect(read, limit)


def _percent(share: float | None) -> str:
    return "" if share is None else output.format_share(share)


def _print(app: App, page: Page[Slo]) -> None:
    if not page.items:
        app.hint("No service levels yet: the scheduler declares them for registered pipelines.")
    for one in page.items:
        where = " ".join(part for part in (one.mode, one.phase, one.measure) if part)
        click.echo(output.escape_control(where))
        output.print_facts(
            [
                ("target", target_text(one) or "none declared"),
                ("objective", f"{one.objective_percentage:g} %"),
                ("results", f"{one.met:,} met, {one.missed:,} missed"),
                ("budget left", _percent(one.budget_left) or "no results yet"),
                ("burn rate", _rates(one)),
            ]
        )
        for point in one.points[-10:]:
            took = "open" if point.took is None else output.format_span(point.took)
            mark = " degraded" if point.is_degraded else ""
            click.echo(
                output.escape_control(
                    f"    {point.partition}  {point.customer}  {took}  {point.outcome or ''}{mark}"
                )
            )


def _rates(one: Slo) -> str:
    if one.burn_rate is None and one.burn_rate_slow is None:
        return "no results in six hours"
    fast, slow = one.burn_rate or 0.0, one.burn_rate_slow or 0.0
    return f"{fast:.1f} in the last hour, {slow:.1f} in six hours"
