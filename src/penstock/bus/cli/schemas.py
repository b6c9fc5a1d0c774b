"""`penstock schemas`: definitions that the messages of topics must match, and their revisions."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.bus.cli.topics import LIMIT, OWNER_OPTION
from penstock.bus.records import Schema, StoredSchema
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import confirm, read_text
from penstock.cli.rows import collect
from penstock.core.records.record import Page

DEFINITION = click.option(
    "--file", "file", required=True, metavar="FILE",
    help="File with the definition: Avro as JSON, or Protobuf; - is stdin.",
)  # fmt: skip
KIND = click.option(
    "--type", "kind", type=click.Choice(["avro", "protobuf"]), default="avro", show_default=True,
    help="Language of the definition. Messages are checked against Avro only.",
)  # fmt: skip
LIMIT_OPTION = click.option(
    "--limit", type=LIMIT, default=100, show_default=True, help="Maximum number of rows."
)


@click.group(cls=Group)
def schemas() -> None:
    """Create and list message schemas; add, list and roll back revisions."""


@schemas.command("list")
@OWNER_OPTION
@LIMIT_OPTION
@click.pass_obj
def list_(app: App, customer: str | None, limit: int) -> None:
    """List schemas by name, each with its latest revision."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.schemas.list(customer=customer, limit=n, cursor=cursor), limit
        )
    _emit_page(app, page, "No schemas. Create one: penstock schemas create NAME --file FILE")


@schemas.command("revisions")
@click.argument("name")
@OWNER_OPTION
@LIMIT_OPTION
@click.pass_obj
def revisions(app: App, name: str, customer: str | None, limit: int) -> None:
    """List the revisions of a schema, newest first."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.schemas.revisions(
                name, customer=customer, limit=n, cursor=cursor
            ),
            limit,
        )
    _emit_page(app, page, f"{name} has no revisions.")


@schemas.command("show")
@click.argument("name")
@OWNER_OPTION
@click.option("--revision", metavar="ID", help="Revision to show; the latest by default.")
@click.pass_obj
def show(app: App, name: str, customer: str | None, revision: str | None) -> None:
    """Show a revision of a schema with its definition."""
    with app.connect() as client:
        found = client.schemas.get(name, revision_id=revision, customer=customer)

    def print_text() -> None:
        _print(found)
        click.echo(output.escape_control(found.definition))

    app.emit(found, print_text)


@schemas.command("create")
@click.argument("name")
@DEFINITION
@KIND
@OWNER_OPTION
@dry_run_option
@click.pass_obj
def create(app: App, name: str, file: str, kind: str, customer: str | None) -> None:
    """Create a schema with its first revision; its name must be new."""
    wanted = _schema(name, file, kind)
    with app.connect() as client:
        made = client.schemas.create(wanted, customer=customer)
    app.emit(made, lambda: _print(made))


@schemas.command("commit")
@click.argument("name")
@DEFINITION
@KIND
@OWNER_OPTION
@dry_run_option
@click.pass_obj
def commit(app: App, name: str, file: str, kind: str, customer: str | None) -> None:
    """Add a revision to a schema; its type must stay the same."""
    wanted = _schema(name, file, kind)
    with app.connect() as client:
        made = client.schemas.commit(wanted, customer=customer)
    app.emit(made, lambda: _print(made))


@schemas.command("rollback")
@click.argument("name")
@click.argument("revision", metavar="REVISION")
@OWNER_OPTION
@dry_run_option
@click.pass_obj
def rollback(app: App, name: str, revision: str, customer: str | None) -> None:
    """Add a revision with the definition of an earlier one."""
    with app.connect() as client:
        made = client.schemas.rollback(name, revision, customer=customer)
    app.emit(made, lambda: _print(made))


@schemas.command("delete")
@click.argument("name")
@click.option("--revision", metavar="ID", help="Delete only this revision.")
@OWNER_OPTION
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def delete(app: App, name: str, revision: str | None, customer: str | None, yes: bool) -> None:
    """Delete a schema or one revision. Topics with a deleted schema reject all messages."""
    which = name if revision is None else f"{name}@{revision}"
    if not yes and not app.is_json and not app.is_dry_run:
        confirm(f"Delete the schema {which}? Topics that use it will reject every message.")
    with app.connect() as client:
        client.schemas.delete(name, revision_id=revision, customer=customer)
    app.emit({"name": which, "outcome": "deleted"}, lambda: click.echo(f"{which} is deleted."))


def _schema(name: str, file: str, kind: str) -> Schema:
    definition = read_text(Path(file), "file")
    return Schema(name=name, definition=definition, kind="avro" if kind == "avro" else "protobuf")


def _print(one: StoredSchema) -> None:
    created = output.format_time(one.created_at)
    click.echo(f"{one.name} · {one.kind} · revision {one.revision_id} · created {created}")


def _emit_page(app: App, page: Page[StoredSchema], empty: str) -> None:
    app.emit_page(
        page,
        {
            "SCHEMA": lambda one: one.name,
            "TYPE": lambda one: one.kind,
            "REVISION": lambda one: one.revision_id,
            "CREATED": lambda one: output.format_time(one.created_at),
        },
        empty=empty,
    )
