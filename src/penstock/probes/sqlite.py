"""SQLite files: opened read-only for every look, interrupted when it takes too long.

Opening costs a tenth of a millisecond, so nothing is kept open. Tables have one name, or two for
an attached database (`main.orders`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.probes.alarm import Alarm
from penstock.probes.api import Answer, Budget, Dialect, ProbeFailed, Row, Statement
from penstock.probes.names import table_quoted

if TYPE_CHECKING:
    import sqlite3


class SqliteWarehouse:
    """The tables of one file."""

    dialect = Dialect(mark=lambda name: f":{name}", parts_max=2)

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._library = _library()

    def source(self, table: str, tag: str) -> Statement:  # noqa: ARG002  # the protocol's
        """The quoted name."""
        return Statement(text=table_quoted(table, self.dialect))

    def read(self, statements: Sequence[Statement], budget: Budget) -> Answer:
        """Read the statements in one snapshot."""
        with Alarm(budget.seconds_each) as alarm:
            try:
                with closing(self._connect(budget.seconds_each)) as connection:
                    alarm.on_ring(connection.interrupt)
                    try:
                        return Answer(results=_results(connection, statements, alarm))
                    finally:
                        alarm.off()
            except self._library.Error as error:
                alarm.check()
                raise ProbeFailed(str(error)) from None

    def close(self) -> None:
        """Nothing is kept open."""

    def _connect(self, seconds: float) -> sqlite3.Connection:
        if not self._path.is_file():
            raise ProbeFailed(f"there is no file {self._path}")
        connection: sqlite3.Connection = self._library.connect(
            f"file:{quote(str(self._path.absolute()))}?mode=ro",
            uri=True,
            timeout=seconds,
            isolation_level=None,
            check_same_thread=False,  # the alarm interrupts from its own thread
        )
        return connection


def _results(
    connection: sqlite3.Connection, statements: Sequence[Statement], alarm: Alarm
) -> list[list[Row]]:
    connection.execute("PRAGMA query_only = ON")
    connection.execute("BEGIN")
    results: list[list[Row]] = []
    for statement in statements:
        alarm.check()
        cursor = connection.execute(statement.text, dict(statement.values))
        results.append(cursor.fetchmany(statement.rows_max))
    return results


def _library() -> Any:
    # Imported when used, like every library here; the store's own where that is installed.
    try:
        return import_module("pysqlite3.dbapi2")  # optional
    except ImportError:
        return import_module("sqlite3")  # always there
