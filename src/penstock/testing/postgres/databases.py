"""Create and drop databases on a PostgreSQL server, and use servers that are already running.

Called by `penstock.testing.postgres` and, through it, by fixtures. It starts and stops nothing.
"""

from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise ImportError(
        f"PostgreSQL needs its driver ({error}): pip install 'penstock-engine[postgres]', "
        "in a clone pip install '.[postgres]' or make dev"
    ) from error

__all__ = [
    "ConfiguredServer",
    "DatabaseServer",
    "database_accepts_connections",
    "database_create",
    "database_drop",
    "database_folder",
]


class DatabaseServer(Protocol):
    """The interface of a server for tests, launched or configured."""

    def dsn(self, dbname: str = "postgres") -> str:
        """Return the connection URL of a database."""

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if given, and return its URL."""

    def drop_database(self, name: str) -> None:
        """Drop a database and end its connections; do nothing if it does not exist."""


class ConfiguredServer:
    """A running server, given by a URL whose user may create databases."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    def dsn(self, dbname: str = "postgres") -> str:
        """Return the configured URL with the database replaced."""
        return urlunsplit(self._url._replace(path=f"/{dbname}"))

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if given, and return its URL."""
        database_create(urlunsplit(self._url), name, template)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and end its connections; do nothing if it does not exist."""
        database_drop(urlunsplit(self._url), name)


def database_accepts_connections(dsn: str) -> bool:
    """Return whether a database accepts connections."""
    try:
        psycopg.connect(dsn, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def database_folder(dsn: str) -> Path | None:
    """Return the data folder of the server at a URL; None if none answers."""
    try:
        with psycopg.connect(dsn, connect_timeout=2) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.Error:
        return None
    return None if row is None else Path(str(row[0]))


def database_create(admin_dsn: str, name: str, template: str | None) -> None:
    """Create a database as a copy of `template`; `admin_dsn` names any other database."""
    # template0 is the default because it accepts no connections, which would block the copy.
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
        sql.Identifier(name), sql.Identifier(template or "template0")
    )
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute(statement)


def database_drop(admin_dsn: str, name: str) -> None:
    """Drop a database and end its connections; do nothing if it does not exist."""
    statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        connection.execute(statement)
