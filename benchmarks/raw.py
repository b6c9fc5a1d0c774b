"""Direct connections for limits and loading: psycopg or sqlite3, without Penstock's code.

They are configured like Penstock's own: durable commits, the same cache, the same library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import pysqlite3.dbapi2 as sqlite3
    except ImportError:
        import sqlite3

Row = tuple[Any, ...]


class Raw(Protocol):
    """A connection in autocommit mode; transactions start with an explicit BEGIN."""

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a statement and fetch its rows."""
        ...

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        """Run a statement; return the number of affected rows."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class PostgresRaw:
    """A psycopg connection; statements are prepared at first use unless disabled."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True, application_name="bench-raw")
        self.connection.adapters.register_dumper(int, Int8Dumper)
        self.connection.adapters.register_dumper(int, Int8BinaryDumper)

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a statement and fetch its rows."""
        return self.connection.execute(sql.encode(), params, prepare=True).fetchall()

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        """Run a statement; return the number of affected rows."""
        return self.connection.execute(sql.encode(), params, prepare=params is not None).rowcount

    def planned(self, sql: str, params: Mapping[str, Any]) -> list[Row]:
        """Run a statement planned for these values (batches of arrays)."""
        return self.connection.execute(sql.encode(), params, prepare=False).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class SqliteRaw:
    """A sqlite3 connection to a file: WAL, synchronous=FULL."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(str(path), timeout=20, isolation_level=None)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "wal_autocheckpoint = 8000",
            "temp_store = MEMORY",
            "cache_size = -65536",
        ):
            self.connection.execute(f"PRAGMA {pragma}")

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a statement and fetch its rows."""
        return list(self.connection.execute(sql, params or {}).fetchall())

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        """Run a statement; return the number of affected rows."""
        return int(self.connection.execute(sql, params or {}).rowcount)

    def many(self, sql: str, rows: Iterable[Row]) -> None:
        """Run a statement once per row."""
        self.connection.executemany(sql, rows)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
