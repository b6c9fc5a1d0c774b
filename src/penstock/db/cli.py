"""`penstock db`: bring the schema up to date, verify it, say where it is, rotate its key."""

from __future__ import annotations

import click

from penstock.cli.app import App, Group


@click.group(cls=Group)
def db() -> None:
    """The database: migrate, verify, path; the key that signs pushes."""


@db.command("migrate")
@click.pass_obj
def migrate(app: App) -> None:
    """Bring the schema up to date; a SQLite file that is not there is created."""
    # Opening a store loads its driver.
    from penstock.assembly.process import migrate_store

    settings = app.database_settings()
    applied = migrate_store(settings)
    where = _where(app)
    text = f"Applied: {', '.join(applied)}" if applied else "Already up to date"
    app.emit({"applied": applied, "database": where}, lambda: click.echo(f"{text} ({where})."))


@db.command("verify")
@click.pass_obj
def verify(app: App) -> None:
    """Check that the schema is the one this version expects, and the journal's seals."""
    with app.client() as client:
        blocks, entries, problem = client.views.verify_journal()
    where = _where(app)
    record = {"database": where, "schema": "current", "sealed_blocks": blocks,
              "sealed_entries": entries, "problem": problem}  # fmt: skip

    def people() -> None:
        click.echo(f"Schema: current ({where}).")
        click.echo(f"Journal: {blocks:,} sealed blocks, {entries:,} entries, "
                   f"{problem or 'all as they were sealed'}.")  # fmt: skip

    app.emit(record, people)
    if problem:
        raise click.exceptions.Exit(1)


@db.command("rotate-push-key")
@click.pass_obj
def rotate_push_key(app: App) -> None:
    """Sign tokens of push with a new key; the one before stays published."""
    # As above.
    from penstock.assembly.process import rotate_signing_key

    with app.client() as client:
        key_id = rotate_signing_key(client.store, client.actor)
    said = f"Tokens of push are signed with {key_id} from now on, within a minute everywhere."
    app.emit({"key_id": key_id}, lambda: click.echo(said))


@db.command("path")
@click.pass_obj
def path(app: App) -> None:
    """Print where state lives (a password is not shown)."""
    where = _where(app)
    app.emit({"database": where}, lambda: click.echo(where))


def _where(app: App) -> str:
    # As above.
    from penstock.assembly.process import describe_database

    return describe_database(app.database_settings().database_url)
