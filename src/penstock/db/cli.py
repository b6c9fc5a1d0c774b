"""`penstock db`: migrate and copy the database, shorten its leases, rotate the push key."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.app import App, Group, reject_url

NAMES_MAX = 3
"""Maximum number of migrations that are listed one by one."""


@click.group(cls=Group)
def db() -> None:
    """Migrate and copy the database; rotate the push signing key."""


@db.command("migrate")
@click.pass_obj
def migrate(app: App) -> None:
    """Migrate the schema to the current version; creates a missing SQLite file."""
    # Imported here because it loads the database driver.
    from penstock.assembly.database import migrate_store

    settings = app.database_settings()
    applied = migrate_store(settings)
    where = _where(app)
    text = _describe_migrations(applied)
    app.emit({"applied": applied, "database": where}, lambda: click.echo(f"{text} ({where})."))


@db.command("copy")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--while-running", is_flag=True,
              help="Copy even though processes are using the source (a trial copy).")  # fmt: skip
@click.pass_obj
def copy(app: App, source: str, target: str, while_running: bool) -> None:
    """Copy everything from SOURCE into the empty database TARGET of the other engine.

    Both are database URLs, such as sqlite:penstock.db and postgresql://…. The copy is one
    transaction: if it fails, TARGET stays empty. It is verified by counts, seals and the journal.
    """
    # Imported here because it loads both drivers.
    from penstock.assembly.copying import copy_database
    from penstock.assembly.database import describe_database  # as above

    reject_url(app.settings().url)
    places = [app.settings(database_url=url, url="") for url in (source, target)]

    def progress(table: str, rows: int) -> None:
        if rows and app.format == "table" and not app.is_quiet:
            click.echo(f"{rows:>12,}  {table}")

    done = copy_database(places[0], places[1], while_running=while_running, on_table=progress)
    rows = sum(done.tables.values())
    where = describe_database(places[1].database_url)
    record = {
        "database": where,
        "rows": rows,
        "tables": {name: count for name, count in done.tables.items() if count},
        "entries": done.entries,
        "problems": done.problems,
    }

    def print_text() -> None:
        click.echo(
            f"{rows:>12,}  rows copied to {where}; {done.entries:,} journal entries verified"
        )
        for problem in done.problems:
            click.echo(f"FAIL  {problem}")
        if not done.problems:
            app.hint("Set PENSTOCK_DATABASE_URL to it and start the processes again.")

    app.emit(record, print_text)
    if done.problems:
        raise click.exceptions.Exit(1)


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


@db.command("clip-times")
@click.pass_obj
def clip_times(app: App) -> None:
    """Shorten leases that end too far in the future after the clock was set back.

    Otherwise a process that died keeps its runs until the clock has caught up. Live processes renew
    their leases within seconds. Correct the clock (NTP) first.
    """
    # Imported here because it loads the database driver.
    from penstock.assembly.process import clip_times as clip

    with app.client() as client:
        found = clip(client.store)
    text = (
        f"Shortened {len(found)} leases: {', '.join(found)}." if found else "No lease to shorten."
    )
    app.emit({"processes": found}, lambda: click.echo(text))


@db.command("path")
@click.pass_obj
def path(app: App) -> None:
    """Print the location of the database, without its password."""
    where = _where(app)
    app.emit({"database": where}, lambda: click.echo(where))


def _describe_migrations(applied: Sequence[str]) -> str:
    """Return which migrations were applied; of many, the number with the first and the last."""
    if not applied:
        return "Already up to date"
    if len(applied) <= NAMES_MAX:
        return f"Applied: {', '.join(applied)}"
    return f"{len(applied)} migrations applied: {applied[0]} to {applied[-1]}"


def _where(app: App) -> str:
    # Imported here because it loads the database driver.
    from penstock.assembly.database import describe_database

    return describe_database(app.database_settings().database_url)
