"""DuckDB files, and folders of Parquet and CSV files; opened read-only for one probe at a time.

A process that writes a DuckDB file locks it against all other processes, including readers, and a
reader locks it against writers. So a file is opened for one probe and closed again, and the adapter
waits for a lock. A process that has the file open for writing cannot also open it read-only; there
the probe joins the open database, in read-only transactions. `?shared=true` after the
file name requests that mode directly: use it where the probing process also writes the file, and no
other process does.
"""

from __future__ import annotations

import glob
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.probes.names import table_parts, table_quoted
from penstock.probes.protocol import (
    Dialect,
    ProbeBudget,
    ProbeFailed,
    ProbeStatement,
    QueryResults,
    Row,
)
from penstock.probes.timeout import ProbeTimeout

if TYPE_CHECKING:
    import duckdb

LOCK_PAUSE_SECONDS: Final = 0.05
SHARED: Final = "?shared=true"

# DuckDB would read such a name as a file if there is no such table.
_FILE_ENDINGS: Final = frozenset(
    {
        "arrow",
        "csv",
        "db",
        "duckdb",
        "gz",
        "json",
        "jsonl",
        "ndjson",
        "parquet",
        "tsv",
        "xlsx",
        "zst",
    }
)
_READERS: Final = ((".parquet", "read_parquet"), (".csv", "read_csv"), (".csv.gz", "read_csv"))


class DuckDbWarehouse:
    """The tables of one file, or the files of one folder.

    In a folder, table `raw.games` is `raw/games.parquet`, `raw/games.csv`, `raw/games.csv.gz` or
    the files of one type anywhere below `raw/games/`; folders named `day=2025-12-31` are columns.
    """

    dialect = Dialect(mark=lambda name: f"${name}", text_type="VARCHAR", days_by_scan=True)

    def __init__(self, address: str, library: Any) -> None:
        self._library = library
        self._is_shared = address.endswith(SHARED)
        self._path = Path(address.removesuffix(SHARED))
        self._is_folder = address.endswith("/") or self._path.is_dir()
        self._lock = threading.Lock()
        self._memory: duckdb.DuckDBPyConnection | None = None

    def from_clause(self, table: str, tag: str) -> ProbeStatement:
        """Return the quoted name, or a reader function with the file pattern as a bound value."""
        parts = table_parts(table, self.dialect)
        if self._is_folder:
            reader, pattern = self._files(parts, table)
            return ProbeStatement(
                text=f"{reader}(${tag}_files)", values=((f"{tag}_files", pattern),)
            )
        if parts[-1].lower() in _FILE_ENDINGS:
            raise ProbeFailed(f"{table} looks like a file name; use a table name")
        return ProbeStatement(text=table_quoted(table, self.dialect))

    def read(self, statements: Sequence[ProbeStatement], budget: ProbeBudget) -> QueryResults:
        """Read the statements in one snapshot; wait for a lock while there is time left."""
        with ProbeTimeout(budget.dependency_timeout_s) as alarm:
            try:
                with self._connected(alarm) as connection:
                    alarm.on_expired(connection.interrupt)
                    try:
                        return _results(connection, statements, alarm)
                    finally:
                        alarm.cancel()
            except self._library.InterruptException:
                alarm.check()
                raise ProbeFailed("the query was interrupted") from None
            except self._library.Error as error:
                raise ProbeFailed(str(error)) from None

    def close(self) -> None:
        """Close the in-memory database used for folders; files are closed after each probe."""
        with self._lock:
            memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    @contextmanager
    def _connected(self, alarm: ProbeTimeout) -> Iterator[duckdb.DuckDBPyConnection]:
        if self._is_folder:
            with self._lock:
                if self._memory is None:
                    self._memory = self._library.connect(
                        ":memory:", config={"file_search_path": str(self._path)}
                    )
                cursor = self._memory.cursor()
        else:
            cursor = self._opened(alarm)
        with closing(cursor):
            yield cursor

    def _opened(self, alarm: ProbeTimeout) -> duckdb.DuckDBPyConnection:
        if not self._path.is_file():
            raise ProbeFailed(f"there is no file {self._path}")
        while True:
            try:
                return self._connect()
            except self._library.Error as error:
                if not self._is_lock(error) or alarm.is_expired:
                    raise
            alarm.pause(LOCK_PAUSE_SECONDS)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        try:
            return self._library.connect(str(self._path), read_only=not self._is_shared)  # type: ignore[no-any-return]
        except self._library.ConnectionException:
            return self._library.connect(str(self._path))  # type: ignore[no-any-return]

    @staticmethod
    def _is_lock(error: BaseException) -> bool:
        """Return whether another process holds the file, or a thread of this one is closing it.

        Recognized by the message: the library's error types differ between versions.
        """
        return any(words in str(error) for words in ("lock on file", "file handle conflict"))

    def _files(self, parts: Sequence[str], table: str) -> tuple[str, str]:
        """Return the reader of a table's files and the pattern that finds them."""
        path = self._path.joinpath(*parts)
        for ending, reader in _READERS:
            file = path.with_name(path.name + ending)
            if file.is_file():
                return reader, glob.escape(str(file))
        if path.is_dir():
            for ending, reader in _READERS:
                if next(path.rglob(f"*{ending}"), None) is not None:
                    return reader, f"{glob.escape(str(path))}/**/*{ending}"
        wanted = "/".join(parts)
        raise ProbeFailed(f"{table}: no {wanted}.parquet, {wanted}.csv or folder in {self._path}")


def _results(
    connection: duckdb.DuckDBPyConnection, statements: Sequence[ProbeStatement], alarm: ProbeTimeout
) -> QueryResults:
    # Otherwise a name that is not a table could resolve to a Python variable of this process.
    connection.execute("SET SESSION python_enable_replacements = false")
    connection.execute("SET SESSION TimeZone = 'UTC'")
    connection.execute("BEGIN TRANSACTION READ ONLY")
    results: list[list[Row]] = []
    columns: list[tuple[str, ...]] = []
    for statement in statements:
        alarm.check()
        found = connection.execute(statement.text, dict(statement.values))
        columns.append(tuple(column[0] for column in found.description or ()))
        results.append(list(found.fetchmany(statement.rows_max)))
    connection.execute("ROLLBACK")
    return QueryResults(results=results, columns=columns)
