"""`python -m penstock.testing.postgres [FOLDER]`: a PostgreSQL server for trials, until Ctrl-C.

It needs the driver of the extra `postgres`, and the binaries of the extra `dev` or of an installed
PostgreSQL. The data stays in FOLDER (by default `pgdata` in the current folder); commits are
durable. A folder that was used before is served at its previous port if that is free. Anyone on
this machine can connect, so it is not for production.
"""

import re
import signal
import sys
import threading
from pathlib import Path

import click

from penstock.testing.postgres.binaries import PostgresUnavailable
from penstock.testing.postgres.process import is_port_free

NAME = "penstock"
USAGE_EXIT_CODE = 2


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("pgdata"))
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Port to listen on. Default: that of the last start, or a free one.",
)
def main(folder: Path, port: int | None) -> None:
    """Start a server, create the database, print its URL and wait."""
    try:
        # Imported here because both need the PostgreSQL driver, an extra that may be missing.
        from penstock.testing.postgres.databases import (
            database_accepts_connections,
            database_folder,
        )
        from penstock.testing.postgres.server import PostgresServer, server_dsn  # as above
    except ImportError as error:
        click.echo(f"Error: {error}.", err=True)
        sys.exit(USAGE_EXIT_CODE)
    before = last_port(folder)
    if before is not None and database_folder(server_dsn(before, "postgres")) == folder.resolve():
        click.echo(f"PostgreSQL is already running at {server_dsn(before, NAME)}")
        return
    if port is not None and not is_port_free(port):
        sys.exit(f"Error: port {port} is in use. Pass another --port, or omit it.")
    if port is None and before is not None and is_port_free(before):
        port = before
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        with PostgresServer(durable=True, data_dir=folder, port=port) as server:
            if not database_accepts_connections(server.dsn(NAME)):
                server.create_database(NAME)
            click.echo("PostgreSQL is up. In other terminals:")
            click.echo(f"  export PENSTOCK_DATABASE_URL={server.dsn(NAME)}")
            click.echo("Ctrl-C stops it; the data stays in " + str(folder))
            stopping.wait()
    except PostgresUnavailable as error:
        sys.exit(f"Error: {error}.")
    except OSError as error:
        sys.exit(f"Error: {error.filename}: {error.strerror}. Name another FOLDER.")


def last_port(folder: Path) -> int | None:
    """Return the port of the last start on a folder, which PostgreSQL keeps; None if unknown."""
    try:
        found = re.search(r'"port=([0-9]+)"', (folder / "postmaster.opts").read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


if __name__ == "__main__":
    main()
