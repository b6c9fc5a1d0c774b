"""`penstock customers`: list customers by health and set their shares of the capacity."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import click

from penstock.access.records import CustomerSettings
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.rows import collect
from penstock.core.clock import format_duration, parse_duration
from penstock.core.errors import InvalidInput
from penstock.core.records.record import minutes
from penstock.monitoring.records import CustomerHealth, CustomerOrder, HealthWord


@click.group(cls=Group)
def customers() -> None:
    """List customers by health; set their weight, concurrency and start tolerance."""


@customers.command("list")
@click.option("--health", type=click.Choice(get_args(HealthWord)),
              help="Only customers with this health.")  # fmt: skip
@click.option(
    "--find",
    "q",
    metavar="TEXT",
    help="Only customers whose id begins with this text, or the owner of this config.",
)
@click.option("--pipeline", metavar="NAME", help="Only customers with a config of this pipeline.")
@click.option("--provider", metavar="NAME", help="Only customers with a config of this provider.")
@click.option("--domain", metavar="NAME", help="Only customers with a config of this domain.")
@click.option("--sort", type=click.Choice(get_args(CustomerOrder)), default="trouble",
              show_default=True,
              help="Worst health first, by name, or by the next start.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, /, **filters: Any) -> None:
    """List customers with their health and settings, those in trouble first."""
    limit = filters.pop("limit")
    with app.connect() as client:
        page = collect(lambda n, at: client.views.customers(limit=n, cursor=at, **filters), limit)
        now = client.now()
    is_narrowed = any(value for name, value in filters.items() if name != "sort")
    app.emit_page(
        page,
        {
            "CUSTOMER": lambda one: one.customer,
            "HEALTH": lambda one: one.health.replace("_", " "),
            "REASON": lambda one: one.reason or "-",
            "CONFIGS": lambda one: f"{one.configs_active}/{one.configs}",
            "NEXT": lambda one: output.format_time_short(one.next_run_time, now),
            "LAST": lambda one: one.outcomes or "-",
            "TODAY": lambda one: one.runs_today,
            "DEAD": lambda one: one.dead_letters,
            "WEIGHT": lambda one: f"{one.weight:g}",
            "CONCURRENCY": lambda one: one.concurrency or "any",
        },
        empty="No customers match."
        if is_narrowed or filters["sort"] == "next"
        else "No customers yet: the first config, run or key of a customer creates it.",
    )


@customers.command("show")
@click.argument("customer")
@click.pass_obj
def show(app: App, customer: str) -> None:
    """Show the health and the settings of a customer."""
    with app.connect() as client:
        found = client.views.customer_health(customer)
        now = client.now()
    app.emit(found, lambda: _show_health(app, found, now))


@customers.command("set")
@click.argument("customer")
@click.option("--weight", type=float, metavar="N",
              help="Share of the capacity relative to other customers, from 0.1 to 100; "
              "1 is the default.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1), metavar="N",
              help="Maximum number of the customer's runs at a time.")  # fmt: skip
@click.option("--no-concurrency", is_flag=True, help="Remove the maximum number of runs.")
@click.option("--start-tolerance", metavar="DURATION",
              help="Maximum delay for spreading scheduled starts, such as 15m.")  # fmt: skip
@dry_run_option
@click.pass_obj
def set_(
    app: App,
    customer: str,
    weight: float | None,
    concurrency: int | None,
    no_concurrency: bool,
    start_tolerance: str | None,
) -> None:
    """Change a customer's settings.

    A change applies to new runs immediately and to waiting runs within seconds.
    """
    given: dict[str, Any] = {}
    if weight is not None:
        given["weight"] = weight
    if no_concurrency and concurrency is not None:
        raise InvalidInput("concurrency", "no value together with --no-concurrency", concurrency)
    if no_concurrency or concurrency is not None:
        given["concurrency"] = concurrency
    if start_tolerance is not None:
        given["start_tolerance"] = minutes(parse_duration(start_tolerance, "--start-tolerance"))
    if not given:
        raise InvalidInput("weight", "at least one option", None, "For example --weight 3.")
    with app.connect() as client:
        made = client.customers.set(customer, **given)
        now = client.now()
    app.emit(made, lambda: _show(app, made, now))


def _show_health(app: App, found: CustomerHealth, now: int) -> None:
    """Print the settings of a customer, then its health and its last runs."""
    _show(app, found, now)
    health = found.health.replace("_", " ")
    command = f"penstock dlq list --customer {found.customer}"
    output.print_facts(
        [
            ("health", f"{health}: {found.reason}" if found.reason else health),
            ("configs", f"{found.configs_active} of {found.configs} active"),
            ("next start", output.format_time_short(found.next_run_time, now)),
            ("last runs", found.outcomes),
            ("runs", f"{found.runs_today} ended today, {found.running} in progress"),
            ("7 days", _week(found)),
            ("dead letters", f"{found.dead_letters} ({command})" if found.dead_letters else ""),
        ]
    )


def _week(found: CustomerHealth) -> str:
    """Return the figures of the last seven days as text; empty without runs."""
    if found.success_7d is None:
        return ""
    in_time = "" if found.sla_7d is None else f", {output.format_share(found.sla_7d, 1)} in time"
    runs = output.plural(found.runs_7d, "run")
    return f"{runs}, {output.format_share(found.success_7d, 1)} completed{in_time}"


def _show(app: App, found: CustomerSettings, now: int) -> None:
    most = "any number of runs" if found.concurrency is None else f"{found.concurrency} runs"
    click.echo(f"{found.customer} · weight {found.weight:g} · {most} at a time")
    if found.start_tolerance is not None:
        late = format_duration(found.start_tolerance // timedelta(microseconds=1))
        output.print_facts([("starts", f"may be {late} late")])
    if found.updated_at is not None:
        changed = output.format_time(found.updated_at, now)
        output.print_facts([("changed", f"{changed} by {found.updated_by}")])
    if found.concurrency is not None:
        app.hint(f"Its runs in progress: penstock limits show customer:{found.customer}")
