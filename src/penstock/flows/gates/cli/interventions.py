"""`penstock interventions`: gates that need a human decision."""

from __future__ import annotations

from typing import Literal

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import INTERVENTION
from penstock.cli.rows import collect
from penstock.core.records.record import to_json_value
from penstock.flows.gates.records import Intervention
from penstock.recovery.cli.impact import print_impact

Status = Literal["open", "resolved", "all"]
STATUS = click.Choice(["open", "resolved", "all"])


@click.group(cls=Group)
def interventions() -> None:
    """List, show and resolve items that need a human decision."""


@interventions.command("list")
@click.option("--status", type=STATUS, default="open", show_default=True, help="Filter by status.")
@click.option("--customer", metavar="ID", help="Only items of this customer.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, status: Status, customer: str | None, limit: int) -> None:
    """List items that need a human decision, newest first."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.interventions.list(
                status=status, customer=customer, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "ITEM": lambda one: one.intervention_id,
            "STATUS": lambda one: one.status,
            "CUSTOMER": lambda one: one.customer,
            "PIPELINE": lambda one: one.pipeline,
            "PARTITION": lambda one: one.partition,
            "PHASE": lambda one: one.phase,
            "SINCE": lambda one: output.format_time_short(one.opened_at, now),
            "MISSING": lambda one: output.first_line(", ".join(one.missing)),
        },
        empty="No open interventions." if status == "open" else "No interventions match.",
    )
    if page.items:
        app.hint("Details and possible actions: penstock interventions show ITEM")


@interventions.command("show")
@click.argument("intervention_id", type=INTERVENTION)
@click.pass_obj
def show(app: App, intervention_id: str) -> None:
    """Show one item and the commands that resolve it."""
    with app.connect() as client:
        item = client.interventions.get(intervention_id)
        now = client.now()
    app.emit(item, lambda: _print_item(item, now))


def _print_item(item: Intervention, now: int) -> None:
    click.echo(f"{item.intervention_id}  {click.style(item.status, bold=True)}")
    output.print_facts(
        [
            ("customer", item.customer),
            ("pipeline", item.pipeline),
            ("partition", item.partition),
            ("phase", item.phase),
            ("processor", item.processor),
            ("missing", ", ".join(item.missing)),
            ("why", item.reason),
            ("attempts", item.tries),
            ("since", output.format_time(item.opened_at, now)),
            ("resolved", output.format_time(item.resolved_at, now)),
            ("resolved by", item.resolved_by),
            ("resolution", item.resolution),
            ("flow", item.flow_id),
            ("run", item.run_id),
            ("message", (item.payload or {}).get("message_id")),
        ]
    )
    for query in (item.payload or {}).get("queries", ()):
        click.echo(f"  {output.escape_control(query)}")
    if item.status == "open":
        click.echo("What you can do:")
        asked = f"explain {item.flow_id}" if item.run_id is None else f"why {item.run_id}"
        click.echo(f"  penstock {asked}  # what is missing, and all options")
        click.echo(f"  {item.command}  # once it is fixed; evaluates the gate again")


@interventions.command("resolve")
@click.argument("intervention_id", type=INTERVENTION)
@click.option(
    "--resolution",
    required=True,
    metavar="TEXT",
    help="Description of what was done, stored with the intervention.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be resolved; change nothing.")
@click.pass_obj
def resolve(app: App, intervention_id: str, resolution: str, dry_run: bool) -> None:
    """Mark an item as resolved; its gate is evaluated again immediately."""
    with app.connect() as client:
        item = client.interventions.get(intervention_id)
        if not dry_run:
            client.interventions.resolve(intervention_id, resolution)
    where = f"{item.pipeline} {item.partition} {item.phase}"
    word = "would be resolved" if dry_run else "resolved"
    outcome = {"intervention_id": intervention_id, "outcome": word.replace(" ", "_")}
    verb = "would be" if dry_run else "is"
    text = f"{intervention_id} {word}; the gate of {where} {verb} evaluated again."
    app.emit(outcome, lambda: click.echo(output.escape_control(text)))


@interventions.command("approve")
@click.argument("intervention_id", type=INTERVENTION)
@click.option("--reason", required=True, metavar="TEXT", help="Reason, recorded with the approval.")
@click.option("--expires", default="24h", show_default=True, metavar="DURATION",
              help="Lifetime of the approval, at most 7d.")  # fmt: skip
@dry_run_option
@click.pass_obj
def approve(app: App, intervention_id: str, reason: str, expires: str) -> None:
    """Approve starting without the missing data, and continue.

    Grants an override for this gate, resolves the item and evaluates the gate immediately. A phase
    that starts under an override is degraded. Prints what runs, what is written again, which limits
    and service levels that concerns, and how long it will probably take.
    """
    with app.connect() as client:
        item = client.interventions.get(intervention_id)
        impact = client.recovery.approval_impact(intervention_id)
        made = client.interventions.approve(intervention_id, reason, expires)
        now = client.now()
    where = f"{item.pipeline} {item.partition} {item.phase}"
    without = ", ".join(item.missing) or "what is missing"
    until = output.format_time(made.expires_at, now)
    text = (
        f"{made.override_id}: {where} may start without {without} until {until}; "
        f"{intervention_id} is resolved and the gate is evaluated now."
    )

    def show() -> None:
        print_impact(impact, is_dry_run=False)
        click.echo(output.escape_control(text))

    app.emit({**to_json_value(made), "impact": to_json_value(impact)}, show)
