"""`penstock customers`: list customers and set their shares of the capacity."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from penstock.access.records import CustomerSettings
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.rows import collect
from penstock.core.clock import format_duration, parse_duration
from penstock.core.errors import InvalidInput
from penstock.core.records.record import minutes


@click.group(cls=Group)
def customers() -> None:
    """List customers; set their weight, maximum number of runs and tolerance of late starts."""


@customers.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List customers by id, with their settings."""
    with app.connect() as client:
        page = collect(lambda n, cursor: client.customers.list(limit=n, cursor=cursor), limit)
    app.emit_page(
        page,
        {
            "CUSTOMER": lambda one: one.customer,
            "WEIGHT": lambda one: f"{one.weight:g}",
            "CONCURRENCY": lambda one: one.concurrency or "any",
            "CHANGED BY": lambda one: one.updated_by,
        },
        empty="No customers yet: a customer exists from its first config, run or key.",
    )


@customers.command("show")
@click.argument("customer")
@click.pass_obj
def show(app: App, customer: str) -> None:
    """Show the settings of a customer."""
    with app.connect() as client:
        found = client.customers.get(customer)
        now = client.now()
    app.emit(found, lambda: _show(app, found, now))


@customers.command("set")
@click.argument("customer")
@click.option("--weight", type=float, metavar="N",
              help="Share of the capacity relative to other customers, from 0.1 to 100; "
              "1 is the default.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1), metavar="N",
              help="Maximum number of the customer's runs at a time.")  # fmt: skip
@click.option("--no-concurrency", is_flag=True, help="Remove the maximum number of runs.")
@click.option("--start-tolerance", metavar="DURATION",
              help="How late scheduled runs may start to spread them, such as 15m.")  # fmt: skip
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
    """Change the settings of a customer, for new runs at once and for waiting ones in seconds."""
    given: dict[str, Any] = {}
    if weight is not None:
        given["weight"] = weight
    if no_concurrency and concurrency is not None:
        raise InvalidInput("concurrency", "no number with --no-concurrency", concurrency)
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
