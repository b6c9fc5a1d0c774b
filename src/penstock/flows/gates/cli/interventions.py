"""`penstock interventions`: what only a person can resolve."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import INTERVENTION
from penstock.cli.backends.protocol import Shape

STATUS = click.Choice(["open", "resolved", "all"])


@click.group(cls=Group)
def interventions() -> None:
    """What only a person can resolve: list, show, resolve."""


@interventions.command("list")
@click.option("--status", type=STATUS, default="open", show_default=True, help="Only these.")
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="At most so many.")  # fmt: skip
@click.pass_obj
def list_(app: App, status: str, customer: str | None, limit: int) -> None:
    """List what waits for a person, newest first."""
    with app.use_cases() as cases:
        found = cases.flows.interventions(status=status, customer=customer, limit=limit)
        now = cases.now()

    def people() -> None:
        if not found:
            app.say("Nothing waits for a person." if status == "open" else "None match.")
            return
        output.table(
            ("ITEM", "STATUS", "CUSTOMER", "PIPELINE", "PARTITION", "PHASE", "SINCE", "MISSING"),
            [
                (
                    one["intervention_id"], one["status"], one["customer_id"],
                    one["pipeline_template"], one["partition"], one["phase"],
                    output.brief(output.micros(one["opened_at"]), now),
                    output.first_line(", ".join(one["missing"])),
                )
                for one in found
            ],
        )  # fmt: skip
        app.say("More, and what to do: penstock interventions show ITEM")

    app.emit({"interventions": found}, people)


@interventions.command("show")
@click.argument("intervention_id", type=INTERVENTION)
@click.pass_obj
def show(app: App, intervention_id: str) -> None:
    """Show one item and the commands that mend it."""
    with app.use_cases() as cases:
        item = cases.flows.intervention(intervention_id)
        now = cases.now()
    app.emit(item, lambda: _print_item(item, now))


def _print_item(item: Shape, now: int) -> None:
    click.echo(f"{item['intervention_id']}  {click.style(item['status'], bold=True)}")
    output.facts(
        [
            ("customer", item["customer_id"]),
            ("pipeline", item["pipeline_template"]),
            ("partition", item["partition"]),
            ("phase", item["phase"]),
            ("processor", item["processor"]),
            ("missing", ", ".join(item["missing"])),
            ("why", item["reason"]),
            ("tries", item["tries"]),
            ("since", output.when(output.micros(item["opened_at"]), now)),
            ("resolved", output.when(output.micros(item["resolved_at"]), now)),
            ("resolved by", item["resolved_by"]),
            ("resolution", item["resolution"]),
            ("flow", item["flow_id"]),
        ]
    )
    if item["status"] == "open":
        click.echo("What you can do:")
        click.echo(f"  penstock explain {item['flow_id']}  # what is missing, and the ways out")
        click.echo(f"  {item['command']}  # once it is mended; the gate is asked again")


@interventions.command("resolve")
@click.argument("intervention_id", type=INTERVENTION)
@click.option("--resolution", required=True, metavar="TEXT", help="What was done; written down.")
@click.option("--dry-run", is_flag=True, help="Only say what would be resolved.")
@click.pass_obj
def resolve(app: App, intervention_id: str, resolution: str, dry_run: bool) -> None:
    """Say what was done about an item; its gate is asked again at once."""
    with app.use_cases() as cases:
        item = cases.flows.intervention(intervention_id)
        if not dry_run:
            cases.flows.resolve(intervention_id, resolution)
    where = f"{item['pipeline_template']} {item['partition']} {item['phase']}"
    word = "would be resolved" if dry_run else "resolved"
    outcome = {"intervention_id": intervention_id, "outcome": word.replace(" ", "_")}
    text = f"{intervention_id} {word}; the gate of {where} {'would be' if dry_run else 'is'} asked"
    app.emit(outcome, lambda: click.echo(output.printable(f"{text} again.")))
