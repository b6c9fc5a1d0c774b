"""Real warehouses with the same few tables, and a short way to probe them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import duckdb
import psycopg

from penstock.flows.gates.evidence import Observation
from penstock.pipelines.dependency import Dependency
from penstock.probes.protocol import ProbeBudget, ProbeRequest
from penstock.probes.runner import ProbeRunner

DAY = "2025-12-31"

TABLES = (
    "CREATE TABLE boxscores (game_date {date}, game_id INTEGER, player {text}, points INTEGER, "
    "updated_at {time})",
    "CREATE TABLE schedule (game_date {date}, game_id INTEGER, arena {text})",
)


class Site(Protocol):
    """A warehouse of one engine that a test fills."""

    @property
    def engine(self) -> str:
        """The kind of warehouse."""
        ...

    @property
    def address(self) -> str:
        """The warehouse's address."""
        ...

    @property
    def slow(self) -> str:
        """A query that returns one number, but takes far longer than any test waits."""
        ...

    def run(self, *statements: str) -> None:
        """Execute statements and close the warehouse."""
        ...

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        ...

    def named(self, table: str) -> str:
        """Return the table's name as used in a query."""
        ...


@dataclass
class SqliteSite:
    """One SQLite file."""

    path: Path
    engine: str = "sqlite"
    slow: str = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000000) "
        "SELECT count(*) FROM n"
    )
    types: dict[str, str] = field(
        default_factory=lambda: {"date": "DATE", "text": "TEXT", "time": "TEXT"}
    )

    @property
    def address(self) -> str:
        return f"sqlite:{self.path}"

    def run(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def count(self, table: str) -> int:
        connection = sqlite3.connect(self.path)
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        connection.close()
        return int(found)

    def named(self, table: str) -> str:
        return table


@dataclass
class DuckDbSite:
    """One DuckDB file."""

    path: Path
    engine: str = "duckdb"
    slow: str = (
        "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = b.range"
    )
    types: dict[str, str] = field(
        default_factory=lambda: {"date": "DATE", "text": "VARCHAR", "time": "TIMESTAMPTZ"}
    )

    @property
    def address(self) -> str:
        return f"duckdb:{self.path}"

    def run(self, *statements: str) -> None:
        with duckdb.connect(str(self.path)) as connection:
            for statement in statements:
                connection.execute(statement)

    def count(self, table: str) -> int:
        with duckdb.connect(str(self.path)) as connection:
            found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found is not None
        return int(found[0])

    def named(self, table: str) -> str:
        return table


@dataclass
class ParquetSite(DuckDbSite):
    """A folder with one Parquet file per table, written from a DuckDB file beside it."""

    folder: Path = Path()
    engine: str = "parquet"

    @property
    def address(self) -> str:
        return f"duckdb:{self.folder}/"

    @property
    def quoted(self) -> str:
        """The folder's path, escaped for a SQL string."""
        return str(self.folder).replace("'", "''")

    def run(self, *statements: str) -> None:
        super().run(*statements)
        self.folder.mkdir(exist_ok=True)
        with duckdb.connect(str(self.path)) as connection:
            for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                connection.execute(f"COPY \"{name}\" TO '{self.quoted}/{name}.parquet'")

    def named(self, table: str) -> str:
        return f"'{table}.parquet'"


@dataclass
class PostgresSite:
    """One PostgreSQL database."""

    address: str
    engine: str = "postgres"
    slow: str = "SELECT count(*) FROM generate_series(1, 100000000000) AS n WHERE n % 7 = 3"
    types: dict[str, str] = field(
        default_factory=lambda: {"date": "DATE", "text": "TEXT", "time": "TIMESTAMPTZ"}
    )

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.address) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def count(self, table: str) -> int:
        with psycopg.connect(self.address) as connection:
            found = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
        assert found is not None
        return int(found[0])

    def named(self, table: str) -> str:
        return table


class FillableSite(Site, Protocol):
    """A site that knows its types."""

    @property
    def types(self) -> dict[str, str]:
        """Types of columns by what they hold."""
        ...


def fill(site: FillableSite) -> None:
    """Insert 2 games of 20 rows on DAY and 1 of 10 the day before; a tenth of points is NULL."""
    rows = [
        f"('{day}', {game}, 'p{n}', {'NULL' if n % 10 == 0 else n}, '{day} 0{game}:00:00+00:00')"
        for day, game, count in ((DAY, 1, 20), (DAY, 2, 20), ("2025-12-30", 3, 10))
        for n in range(count)
    ]
    games = ", ".join(f"('{DAY}', {game}, 'arena {(game + 1) // 2}')" for game in (1, 2))
    site.run(
        *(table.format(**site.types) for table in TABLES),
        f"INSERT INTO boxscores VALUES {', '.join(rows)}",
        f"INSERT INTO schedule VALUES {games}, ('2025-12-30', 3, 'arena 1')",
    )


def probe_one(
    probes: ProbeRunner, site: Site, dependency: Dependency, partition: str = DAY, **more: Any
) -> Observation:
    """Probe one dependency; `more` are fields of `ProbeRequest`, or `dependency_timeout_s`."""
    if "dependency_timeout_s" in more:
        more["budget"] = ProbeBudget(dependency_timeout_s=more.pop("dependency_timeout_s"))
    resolved = dependency.with_defaults("game_date", site.address)
    (found,) = probes.probe(ProbeRequest(dependencies=[resolved], partition=partition, **more))
    return found
