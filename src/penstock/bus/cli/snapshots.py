"""`penstock snapshots`: the state of a subscription at a time, to seek back to."""

from __future__ import annotations

import click

from penstock.bus.cli.topics import LIMIT, OWNER_OPTION, parse_attribute
from penstock.bus.records import NewSnapshot, StoredSnapshot
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import confirm
from penstock.cli.rows import collect


@click.group(cls=Group)
def snapshots() -> None:
    """Take, list and delete snapshots of subscriptions; set a subscription to one."""


@snapshots.command("list")
@OWNER_OPTION
@click.option("--topic", metavar="NAME", help="Only snapshots of subscriptions to this topic.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, customer: str | None, topic: str | None, limit: int) -> None:
    """List snapshots by name."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.snapshots.list(
                customer=customer, topic=topic, limit=n, cursor=cursor
            ),
            limit,
        )
    app.emit_page(
        page,
        {
            "SNAPSHOT": lambda one: one.name,
            "TOPIC": lambda one: one.topic,
            "TAKEN": lambda one: output.format_time(one.taken_at),
            "EXPIRES": lambda one: output.format_time(one.expires_at),
        },
        empty="No snapshots. Take one: penstock snapshots create NAME --subscription NAME",
    )


@snapshots.command("show")
@click.argument("name")
@OWNER_OPTION
@click.pass_obj
def show(app: App, name: str, customer: str | None) -> None:
    """Show a snapshot: its topic, when it was taken and when it expires."""
    with app.connect() as client:
        found = client.snapshots.get(name, customer=customer)
    app.emit(found, lambda: _print(found))


@snapshots.command("create")
@click.argument("name")
@click.option("--subscription", required=True, metavar="NAME", help="Subscription to snapshot.")
@OWNER_OPTION
@click.option("--label", "labels", multiple=True, metavar="K=V", help="Set a label.")
@dry_run_option
@click.pass_obj
def create(
    app: App, name: str, subscription: str, customer: str | None, labels: tuple[str, ...]
) -> None:
    """Take a snapshot of a subscription; its name must be new."""
    pairs = dict(parse_attribute(text, "label") for text in labels)
    wanted = NewSnapshot(name=name, subscription=subscription, labels=pairs)
    with app.connect() as client:
        made = client.snapshots.create(wanted, customer=customer)
    app.emit(made, lambda: _print(made))


@snapshots.command("seek")
@click.argument("name")
@click.option("--subscription", required=True, metavar="NAME", help="Subscription to seek.")
@OWNER_OPTION
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def seek(app: App, name: str, subscription: str, customer: str | None, yes: bool) -> None:
    """Redeliver messages unacked in a snapshot or published later; purge the rest."""
    if not (yes or app.is_json or app.is_dry_run):
        confirm(f"Seek {subscription} to {name} and purge the messages acked in it?")
    with app.connect() as client:
        result = client.snapshots.seek(name, subscription, customer=customer)
    text = f"{result.delivered_again} to be redelivered, {result.purged} purged."
    app.emit(result, lambda: click.echo(text))


@snapshots.command("delete")
@click.argument("name")
@OWNER_OPTION
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def delete(app: App, name: str, customer: str | None, yes: bool) -> None:
    """Delete a snapshot; subscriptions are not changed."""
    if not yes and not app.is_json and not app.is_dry_run:
        confirm(f"Delete the snapshot {name}?")
    with app.connect() as client:
        client.snapshots.delete(name, customer=customer)
    app.emit({"name": name, "outcome": "deleted"}, lambda: click.echo(f"{name} is deleted."))


def _print(one: StoredSnapshot) -> None:
    click.echo(f"{one.name} · topic {one.topic} · taken {output.format_time(one.taken_at)}")
    click.echo(f"  expires {output.format_time(one.expires_at)}")
    for label, value in sorted(one.labels.items()):
        click.echo(f"  {output.escape_control(label)}={output.escape_control(value)}")
