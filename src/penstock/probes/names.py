"""Names in queries: checked against the strictest pattern, then quoted; nothing else is inserted.

Declarations are checked when they are made, but a dependency can also be read back from a record or
built by other code, so a name is checked again right where it enters a query.
"""

from __future__ import annotations

from penstock.core.errors import short_repr
from penstock.pipelines.declare.needs import COLUMN, TABLE
from penstock.probes.protocol import Dialect, ProbeFailed


def table_parts(table: str, dialect: Dialect) -> list[str]:
    """Return the parts of `table`, `schema.table` or `project.schema.table`."""
    if not TABLE.fullmatch(table):
        raise ProbeFailed(f"{short_repr(table)} is not a table name")
    parts = table.split(".")
    if len(parts) > dialect.parts_max:
        raise ProbeFailed(f"{short_repr(table)} has more than {dialect.parts_max} parts")
    for part in parts:
        _check_length(part, dialect)
    return parts


def table_quoted(table: str, dialect: Dialect) -> str:
    """Return a table's name with each part quoted."""
    return ".".join(f"{dialect.quote}{part}{dialect.quote}" for part in table_parts(table, dialect))


def column_quoted(column: str, dialect: Dialect, alias: str = "t") -> str:
    """Return a quoted column of the table with this alias.

    The prefix matters: SQLite reads a quoted name that is not a column as a string, so counting a
    column that does not exist would count every row.
    """
    if not COLUMN.fullmatch(column):
        raise ProbeFailed(f"{short_repr(column)} is not a column name")
    _check_length(column, dialect)
    return f"{alias}.{dialect.quote}{column}{dialect.quote}"


def _check_length(name: str, dialect: Dialect) -> None:
    # PostgreSQL truncates longer names, so the query could read a different table.
    if len(name) > dialect.name_max:
        raise ProbeFailed(f"{short_repr(name)} is longer than {dialect.name_max} characters")
