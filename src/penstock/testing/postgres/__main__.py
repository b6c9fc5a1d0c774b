"""`python -m penstock.testing.postgres [FOLDER]`: a PostgreSQL server for trials, until Ctrl-C.

It needs the driver of the extra `postgres`, and the binaries of the extra `dev` or of an installed
PostgreSQL. The data stays in FOLDER (by default `pgdata` in the current folder); commits are
durable. Anyone on this machine can connect, so it is not for production.
"""

import signal
import sys
import threading
from pathlib import Path

import click

from penstock.testing.postgres.binaries import PostgresUnavailable

NAME = "penstock"
USAGE_EXIT_CODE = 2


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("pgdata"))
def main(folder: Path) -> None:
    """Start a server, create the database, print its URL and wait."""
    try:
        # Imported here because both need the PostgreSQL driver, an extra that may be missing.
        from penstock.testing.postgres.databases import database_accepts_connections
        from penstock.testing.postgres.server import PostgresServer  # as above
    except ImportError as error:
        click.echo(f"Error: {error}.", err=True)
        sys.exit(USAGE_EXIT_CODE)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        with PostgresServer(durable=True, data_dir=folder) as server:
            if not database_accepts_connections(server.dsn(NAME)):
                server.create_database(NAME)
            click.echo("PostgreSQL is up. In other terminals:")
            click.echo(f"  export PENSTOCK_DATABASE_URL={server.dsn(NAME)}")
            click.echo("Ctrl-C stops it; the data stays in " + str(folder))
            stopping.wait()
    except PostgresUnavailable as error:
        sys.exit(f"Error: {error}. Use another FOLDER if that one cannot be used.")


if __name__ == "__main__":
    main()
