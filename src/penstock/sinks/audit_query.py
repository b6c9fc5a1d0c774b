"""Read-only SQL over the Parquet files of an audit sink, bounded in rows, time and memory.

DuckDB runs in memory with one view for each log. It may open the files that manifests list and
nothing else: no other file, no network, no extension, no change of its settings; and only one
SELECT is executed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.shipping.tables import TABLES, ShippedTable
from penstock.sinks.audit_parquet import ParquetSink, load_duckdb


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The rows of a query."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    is_truncated: bool
    """Whether there are more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkQueryBounds:
    """Bounds of a query. memory_mb applies to files, bytes_max to warehouses billed by bytes."""

    rows_max: int = 1_000
    seconds: float = 30.0
    memory_mb: int = 512
    bytes_max: int | None = None


def query_parquet(root: Path, text: str, bounds: SinkQueryBounds) -> QueryResult:
    """Execute one SELECT over the views of a sink. Raise InvalidInput if it cannot be executed."""
    duckdb = load_duckdb()
    _check_statement(duckdb, text)
    sink = ParquetSink(root)
    files = {table.name: sink.paths(table.name) for table in TABLES}
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": 2, "memory_limit": f"{bounds.memory_mb}MB", "temp_directory": "",
            "autoinstall_known_extensions": False, "autoload_known_extensions": False,
        },
    )  # fmt: skip
    try:
        allowed = ", ".join(_quoted(path) for paths in files.values() for path in paths)
        connection.execute(f"SET allowed_paths = [{allowed}]")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        for table in TABLES:
            connection.execute(_view(table, files[table.name]))
        connection.execute("SET lock_configuration = true")
        return _execute(duckdb, connection, text, bounds.rows_max, bounds.seconds)
    finally:
        connection.close()


def _check_statement(duckdb: Any, text: str) -> None:
    expected = "one SELECT statement"
    try:
        found = duckdb.extract_statements(text)
    except (duckdb.Error, TypeError) as error:  # TypeError: text that is not UTF-8
        raise InvalidInput("query", expected, text[:80], str(error)) from None
    kinds = [statement.type.name for statement in found]
    if kinds != ["SELECT"]:
        got = ", ".join(kinds) or "nothing"
        raise InvalidInput("query", expected, got, "The audit sink is read-only.")


def _view(table: ShippedTable, paths: list[Path]) -> str:
    """Return the statement that creates the view of a log; without files the view has no rows."""
    if paths:
        files = ", ".join(map(_quoted, paths))
        source = f"SELECT * FROM read_parquet([{files}], hive_partitioning = true)"
        return f"CREATE VIEW {table.name} AS {source}"
    types = {"text": "VARCHAR", "integer": "BIGINT", "float": "DOUBLE", "boolean": "BOOLEAN",
             "time": "TIMESTAMP"}  # fmt: skip
    columns = ", ".join(f'CAST(NULL AS {types[form]}) AS "{name}"' for name, form in table.columns)
    return f"CREATE VIEW {table.name} AS SELECT {columns}, CAST(NULL AS DATE) AS date WHERE false"


def _execute(duckdb: Any, connection: Any, text: str, rows_max: int, seconds: float) -> QueryResult:
    is_late, is_over = threading.Event(), threading.Event()

    def stop() -> None:
        if is_over.wait(seconds):
            return
        is_late.set()
        connection.interrupt()
        # An interrupt that arrives before the query has started is lost: repeat it until it takes
        # effect.
        while not is_over.wait(0.05):
            connection.interrupt()

    watcher = threading.Thread(target=stop, name="query-timeout", daemon=True)
    watcher.start()
    try:
        found = connection.execute(text)
        columns = [column[0] for column in found.description or ()]
        rows = found.fetchmany(rows_max + 1)
    except duckdb.Error as error:
        if is_late.is_set():
            expected = f"a query of at most {seconds:g} s"
            raise InvalidInput("query", expected, "a longer query", "Raise --timeout.") from None
        raise InvalidInput(
            "query", "a query that DuckDB can execute", text[:80], str(error)
        ) from None
    finally:
        is_over.set()
        watcher.join()
    return QueryResult(columns=columns, rows=rows[:rows_max], is_truncated=len(rows) > rows_max)


def _quoted(path: Path) -> str:
    return "'" + str(path.absolute()).replace("'", "''") + "'"
