"""`penstock interventions`: gates that need a human decision."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import INTERVENTION
from penstock.cli.backends.protocol import Shape

STATUS = click.Choice(["open", "resolved", "all"])


@click.group(cls=Group)
def interventions() -> None:
    """List, show and resolve what needs a human decision."""


@interventions.command("list")
@click.option("--status", type=STATUS, default="open", show_default=True, help="Filter by status.")
@click.option("--customer", metavar="ID", help="Only items of this customer.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, status: str, customer: str | None, limit: int) -> None:
    """List items that need a human decision, newest first."""
    with app.use_cases() as cases:
        found = cases.flows.interventions(status=status, customer=customer, limit=limit)
        now = cases.now()

    def print_text() -> None:
        if not found:
            app.hint("No open interventions." if status == "open" else "No interventions match.")
            return
        output.print_table(
            ("ITEM", "STATUS", "CUSTOMER", "PIPELINE", "PARTITION", "PHASE", "SINCE", "MISSING"),
            [
                (
                    one["intervention_id"], one["status"], one["customer_id"],
                    one["pipeline_template"], one["partition"], one["phase"],
                    output.format_time_short(output.parse_time(one["opened_at"]), now),
                    output.first_line(", ".join(one["missing"])),
                )
                for one in found
            ],
        )  # fmt: skip
        app.hint("Details and possible actions: penstock interventions show ITEM")

    app.emit({"interventions": found}, print_text)


@interventions.command("show")
@click.argument("intervention_id", type=INTERVENTION)
@click.pass_obj
def show(app: App, intervention_id: str) -> None:
    """Show one item and the commands that resolve it."""
    with app.use_cases() as cases:
        item = cases.flows.intervention(intervention_id)
        now = cases.now()
    app.emit(item, lambda: _print_item(item, now))


def _print_item(item: Shape, now: int) -> None:
    click.echo(f"{item['intervention_id']}  {click.style(item['status'], bold=True)}")
    output.print_facts(
        [
            ("customer", item["customer_id"]),
            ("pipeline", item["pipeline_template"]),
            ("partition", item["partition"]),
            ("phase", item["phase"]),
            ("processor", item["processor"]),
            ("missing", ", ".join(item["missing"])),
            ("why", item["reason"]),
            ("attempts", item["tries"]),
            ("since", output.format_time(output.parse_time(item["opened_at"]), now)),
            ("resolved", output.format_time(output.parse_time(item["resolved_at"]), now)),
            ("resolved by", item["resolved_by"]),
            ("resolution", item["resolution"]),
            ("flow", item["flow_id"]),
        ]
    )
    if item["status"] == "open":
        click.echo("What you can do:")
        click.echo(f"  penstock explain {item['flow_id']}  # what is missing, and all options")
        click.echo(f"  {item['command']}  # once it is fixed; evaluates the gate again")


@interventions.command("resolve")
@click.argument("intervention_id", type=INTERVENTION)
@click.option("--resolution", required=True, metavar="TEXT", help="What was done; recorded.")
@click.option("--dry-run", is_flag=True, help="Show what would be resolved; change nothing.")
@click.pass_obj
def resolve(app: App, intervention_id: str, resolution: str, dry_run: bool) -> None:
    """Mark an item as resolved; its gate is evaluated again immediately."""
    with app.use_cases() as cases:
        item = cases.flows.intervention(intervention_id)
        if not dry_run:
            cases.flows.resolve(intervention_id, resolution)
    where = f"{item['pipeline_template']} {item['partition']} {item['phase']}"
    word = "would be resolved" if dry_run else "resolved"
    outcome = {"intervention_id": intervention_id, "outcome": word.replace(" ", "_")}
    verb = "would be" if dry_run else "is"
    text = f"{intervention_id} {word}; the gate of {where} {verb} evaluated again."
    app.emit(outcome, lambda: click.echo(output.escape_control(text)))
