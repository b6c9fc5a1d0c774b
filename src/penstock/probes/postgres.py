"""PostgreSQL: read-only transactions on a few connections that are kept between probes.

The server ends a statement that takes too long; if the server itself stops responding, the alarm
closes the connection. Settings are applied per transaction, so that they also work behind a
connection pooler. A connection that failed is closed; an idle one that went stale is replaced.
"""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.db.postgres_url import connection_options
from penstock.probes.names import table_quoted
from penstock.probes.protocol import (
    Dialect,
    ProbeBudget,
    ProbeFailed,
    ProbeStatement,
    QueryResults,
    Row,
)
from penstock.probes.redaction import redacted
from penstock.probes.timeout import ProbeTimeout, timeout_error

if TYPE_CHECKING:
    import psycopg

IDLE_MAX: Final = 8
GRACE_SECONDS: Final = 1.0
"""How much longer than the server's statement timeout the alarm waits before it disconnects."""

UNDEFINED_TABLE: Final = "42P01"

_BEGIN = (
    "BEGIN READ ONLY; SET LOCAL statement_timeout = {ms}; SET LOCAL TimeZone = 'UTC'; "
    "SET LOCAL DateStyle = 'ISO'"
)


class PostgresWarehouse:
    """The tables of one database."""

    dialect = Dialect(
        mark=lambda name: f"%({name})s", text_type="text", literal_percent="%%", name_max=63
    )

    def __init__(self, url: str, library: Any) -> None:
        self._url = url
        self._library = library
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []

    def from_clause(self, table: str, tag: str) -> ProbeStatement:  # noqa: ARG002  # the protocol's
        """Return the quoted name of the table; no values are bound."""
        return ProbeStatement(text=table_quoted(table, self.dialect))

    def read(self, statements: Sequence[ProbeStatement], budget: ProbeBudget) -> QueryResults:
        """Read the statements in one transaction."""
        with ProbeTimeout(budget.dependency_timeout_s + GRACE_SECONDS) as alarm:
            try:
                connection = self._begin(budget.dependency_timeout_s, alarm)
                try:
                    found = [_rows(connection, statement) for statement in statements]
                    connection.execute("ROLLBACK")
                    alarm.cancel()
                except BaseException:
                    alarm.cancel()
                    connection.close()
                    raise
            except self._library.Error as error:
                if alarm.is_expired or isinstance(error, self._library.errors.QueryCanceled):
                    raise timeout_error(budget.dependency_timeout_s) from None
                raise ProbeFailed(redacted(_message(error), self._url)) from None
        self._keep(connection)
        return QueryResults(
            results=[rows for rows, _ in found], columns=[names for _, names in found]
        )

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _begin(self, seconds: float, alarm: ProbeTimeout) -> psycopg.Connection[Any]:
        """Return a connection with an open transaction; stale connections are detected here."""
        begin = _BEGIN.format(ms=max(1, round(seconds * 1_000)))
        while True:
            connection = self._take()
            is_new = connection is None
            if connection is None:
                connection = self._connect(seconds)
            alarm.on_expired(partial(_disconnect, connection))
            try:
                connection.execute(begin)
            except BaseException as error:
                alarm.on_expired(None)
                connection.close()
                if (
                    is_new
                    or alarm.is_expired
                    or not isinstance(error, self._library.OperationalError)
                ):
                    raise
            else:
                return connection

    def _connect(self, seconds: float) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = self._library.connect(
            self._url,
            autocommit=True,  # transactions are begun and ended explicitly here
            prepare_threshold=None,
            **connection_options(
                self._url,
                connect_timeout=max(2, math.ceil(seconds)),
                application_name="penstock-probe",
            ),
        )
        return connection

    def _take(self) -> psycopg.Connection[Any] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()


def _message(error: psycopg.Error) -> str:
    """Return the message of the server without the excerpt of the statement."""
    found = error.diag.message_primary
    if found is None:
        return str(error)
    if error.sqlstate == UNDEFINED_TABLE:
        return f"{found}; create it, or correct its name in the need"
    return f"{found} ({error.diag.message_hint})" if error.diag.message_hint else found


def _rows(
    connection: psycopg.Connection[Any], statement: ProbeStatement
) -> tuple[list[Row], tuple[str, ...]]:
    """Return the rows of a statement, and the names of its columns."""
    cursor = connection.execute(statement.text, dict(statement.values))
    names = tuple(column.name for column in cursor.description or ())
    return cursor.fetchmany(statement.rows_max), names


def _disconnect(connection: psycopg.Connection[Any]) -> None:
    """Shut the connection down from another thread; the waiting thread receives an error."""
    with socket.socket(fileno=os.dup(connection.fileno())) as raw:
        raw.shutdown(socket.SHUT_RDWR)
