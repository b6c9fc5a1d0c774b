"""`penstock db`: migrate the database, print its location, rotate the push key."""

from __future__ import annotations

import click

from penstock.cli.app import App, Group


@click.group(cls=Group)
def db() -> None:
    """Migrate the database; rotate the push signing key."""


@db.command("migrate")
@click.pass_obj
def migrate(app: App) -> None:
    """Migrate the schema to the current version; creates a missing SQLite file."""
    # Imported here because it loads the database driver.
    from penstock.assembly.database import migrate_store

    settings = app.database_settings()
    applied = migrate_store(settings)
    where = _where(app)
    text = f"Applied: {', '.join(applied)}" if applied else "Already up to date"
    app.emit({"applied": applied, "database": where}, lambda: click.echo(f"{text} ({where})."))


@db.command("rotate-push-key")
@click.pass_obj
def rotate_push_key(app: App) -> None:
    """Create a new key for signing push tokens; the previous one stays published."""
    # Imported here because it loads the database driver.
    from penstock.assembly.process import rotate_signing_key

    with app.client() as client:
        key_id = rotate_signing_key(client.store, app.settings(), client.actor)
    text = f"New signing key {key_id}; all processes use it within a minute."
    app.emit({"key_id": key_id}, lambda: click.echo(text))


@db.command("path")
@click.pass_obj
def path(app: App) -> None:
    """Print the location of the database, without its password."""
    where = _where(app)
    app.emit({"database": where}, lambda: click.echo(where))


def _where(app: App) -> str:
    # Imported here because it loads the database driver.
    from penstock.assembly.database import describe_database

    return describe_database(app.database_settings().database_url)
