"""SQLite files: opened read-only for every probe, interrupted when it takes too long.

Opening costs a tenth of a millisecond, so nothing is kept open. Tables have one name, or two with
the database (`main.orders`). The library is Python's own, as in most processors, not the one that
the store uses: two copies of SQLite in a process do not see each other's locks, and closing a file
in one drops the locks of the other. For the same reason the store's own file must not be probed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from penstock.probes.names import table_quoted
from penstock.probes.protocol import (
    Dialect,
    ProbeBudget,
    ProbeFailed,
    ProbeStatement,
    QueryResults,
    Row,
)
from penstock.probes.timeout import ProbeTimeout


class SqliteWarehouse:
    """The tables of one file."""

    dialect = Dialect(mark=lambda name: f":{name}", parts_max=2)

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def from_clause(self, table: str, tag: str) -> ProbeStatement:  # noqa: ARG002  # the protocol's
        """Return the quoted name of the table; no values are bound."""
        return ProbeStatement(text=table_quoted(table, self.dialect))

    def read(self, statements: Sequence[ProbeStatement], budget: ProbeBudget) -> QueryResults:
        """Read the statements in one snapshot."""
        with ProbeTimeout(budget.dependency_timeout_s) as alarm:
            try:
                with closing(self._connect(budget.dependency_timeout_s)) as connection:
                    alarm.on_expired(connection.interrupt)
                    try:
                        return _results(connection, statements, alarm)
                    finally:
                        alarm.cancel()
            except sqlite3.Error as error:
                if str(error) == "interrupted":
                    alarm.check()
                fix = "; create it, or correct its name in the need"
                is_missing = str(error).startswith("no such table")
                raise ProbeFailed(f"{error}{fix if is_missing else ''}") from None

    def close(self) -> None:
        """Do nothing: no connection is kept open."""

    def _connect(self, seconds: float) -> sqlite3.Connection:
        if not self._path.is_file():
            raise ProbeFailed(f"there is no file {self._path}")
        return sqlite3.connect(
            f"file:{quote(str(self._path.absolute()))}?mode=ro",
            uri=True,
            timeout=seconds,
            isolation_level=None,
            check_same_thread=False,  # the alarm interrupts from its own thread
        )


def _results(
    connection: sqlite3.Connection, statements: Sequence[ProbeStatement], alarm: ProbeTimeout
) -> QueryResults:
    connection.execute("PRAGMA query_only = ON")
    connection.execute("BEGIN")
    results: list[list[Row]] = []
    columns: list[tuple[str, ...]] = []
    for statement in statements:
        alarm.check()
        cursor = connection.execute(statement.text, dict(statement.values))
        columns.append(tuple(column[0] for column in cursor.description or ()))
        results.append(cursor.fetchmany(statement.rows_max))
    return QueryResults(results=results, columns=columns)
