"""Statements through psycopg's cursors, one round trip each: the alternative to `pipeline`.

It is slower, but uses only psycopg's documented interface. The setting `postgres_pipeline` selects
it. psycopg prepares a statement once a connection has executed it five times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import psycopg
from psycopg.types.numeric import Int8Dumper

from penstock.db.postgres.pipeline import (
    PREPARED_MAX,
    STALE,
    PipelinedStatement,
    PostgresSession,
    StatementPipeline,
)
from penstock.db.store import Row


class PlainSession(PostgresSession):
    """A connection whose statements are executed by psycopg's cursors."""

    def _new_pipeline(self) -> StatementPipeline:
        return PlainStatements(self)


class PlainStatements(StatementPipeline):
    """Executes statements one by one."""

    is_pipelined = False

    def __init__(self, connection: PostgresSession) -> None:
        super().__init__(connection)
        connection.prepare_threshold = 5 if connection.keeps_statements else None
        connection.prepared_max = PREPARED_MAX
        # psycopg sends an int as the smallest type that holds it: up to three plans per statement.
        connection.adapters.register_dumper(int, Int8Dumper)

    @staticmethod
    def prepared(label: str, text: str, params: Mapping[str, Any]) -> PipelinedStatement:
        """Build a statement with `%(name)s` placeholders."""
        return PipelinedStatement(label, text, params)

    def send(self, asks: Sequence[PipelinedStatement]) -> None:
        """Execute the statements in order. Raises the first error; the rest is not executed."""
        for ask in asks:
            # A text without parameters is a large batch or a command: not worth preparing.
            prepare = None if ask.params is not None else False
            try:
                cursor = self.connection.execute(cast("Any", ask.text), ask.params, prepare=prepare)
            except STALE:
                self.connection.close()
                raise
            ask.result = _Fetched(cursor)
        self._check_replicated()


class _Fetched:
    """The result of a cursor."""

    __slots__ = ("_count", "_rows", "_status")

    def __init__(self, cursor: psycopg.Cursor[Row]) -> None:
        self._rows = cursor.fetchall() if cursor.description else []
        self._count = cursor.rowcount
        self._status = cursor.statusmessage or ""

    def rows(self) -> list[Row]:
        """Return the fetched rows, as Python values."""
        return self._rows

    def count(self) -> int:
        """Return the number of rows affected or returned."""
        return self._count

    def status(self) -> str:
        """Return the server's command tag."""
        return self._status
