"""Where benchmarks run: a durable PostgreSQL server or a folder of SQLite files.

A `Site` creates places (databases with Penstock's schema), copies them and removes them. Prepared
places are kept by name, so that benchmarks with the same data share the cost of loading it.
`site_open` launches PostgreSQL with the settings below, or uses the server named by
PENSTOCK_DATABASE_URL (databases named `penstock_bench_*` are created and dropped there).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg

from benchmarks.raw import PostgresRaw, Raw, SqliteRaw
from benchmarks.result import print_progress
from penstock.core.clock import Clock
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.statements import Engine
from penstock.db.store import Store
from penstock.testing.postgres.server import ConfiguredServer, DatabaseServer, PostgresServer

URL_VARIABLE = "PENSTOCK_DATABASE_URL"
PIPELINE_VARIABLE = "PENSTOCK_POSTGRES_PIPELINE"
PREALLOCATION_VARIABLE = "PENSTOCK_SQLITE_PREALLOCATION"

# fsync, synchronous_commit and full_page_writes are on (durable=True). The others are common
# values for a machine with a few gigabytes and an SSD.
SETTINGS: dict[str, str | int] = {
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "work_mem": "32MB",
    "maintenance_work_mem": "512MB",
    "random_page_cost": "1.1",
    "effective_cache_size": "3GB",
    "jit": "off",
}


@dataclass(frozen=True, slots=True)
class BenchDatabase:
    """One database: `url` as Penstock spells it, `where` as the driver does."""

    engine: Engine
    name: str
    url: str
    where: str

    def store(self, clock: Clock | None = None) -> Store:
        """Open a new store, optionally under another clock; the caller closes it."""
        if self.engine == "postgres":
            is_pipelined = os.environ.get(PIPELINE_VARIABLE, "on") == "on"
            return PostgresStore(self.where, clock, is_pipelined=is_pipelined)
        preallocates_wal = os.environ.get(PREALLOCATION_VARIABLE, "off") == "on"
        return SqliteStore(Path(self.where), clock, preallocates_wal=preallocates_wal)

    def raw(self) -> Raw:
        """Open a new direct connection; the caller closes it."""
        if self.engine == "postgres":
            return PostgresRaw(self.where)
        return SqliteRaw(Path(self.where))


class Site(Protocol):
    """Creates, copies and removes places."""

    engine: Engine

    def create(self, name: str) -> BenchDatabase:
        """Create a new place with Penstock's schema."""
        ...

    def copy(self, place: BenchDatabase, name: str) -> BenchDatabase:
        """Copy a place without connections."""
        ...

    def drop(self, place: BenchDatabase) -> None:
        """Remove a place."""
        ...

    def prepared(self, name: str, load: Callable[[BenchDatabase], None]) -> BenchDatabase:
        """Return the place of that name, created and loaded at first use and left unchanged."""
        ...


class _Kept:
    """Prepared places by name."""

    def __init__(self) -> None:
        self._places: dict[str, BenchDatabase] = {}

    def prepared(self, name: str, load: Callable[[BenchDatabase], None]) -> BenchDatabase:
        """Return the place of that name, created and loaded at first use and left unchanged."""
        if name not in self._places:
            print_progress(f"loading {name}")
            place = self.create(name)
            load(place)
            self._places[name] = place
        return self._places[name]

    def create(self, name: str) -> BenchDatabase:
        """Create a new place with Penstock's schema."""
        raise NotImplementedError


class PostgresSite(_Kept):
    """Databases on one server."""

    engine: Engine = "postgres"

    def __init__(self, server: DatabaseServer) -> None:
        super().__init__()
        self.server = server
        self._made: set[str] = set()

    def create(self, name: str) -> BenchDatabase:
        """Create a new database with Penstock's schema."""
        database = self._named(name)
        self.server.drop_database(database)
        self.server.create_database(database)
        return self._migrated(BenchDatabase("postgres", name, *[self.server.dsn(database)] * 2))

    def copy(self, place: BenchDatabase, name: str) -> BenchDatabase:
        """Copy a database file by file, then checkpoint, so that its cost is not measured."""
        database = self._named(name)
        self.server.drop_database(database)
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {database} TEMPLATE {self._named(place.name)} "
                "STRATEGY FILE_COPY".encode()
            )
            connection.execute("CHECKPOINT")
        return BenchDatabase("postgres", name, *[self.server.dsn(database)] * 2)

    def drop(self, place: BenchDatabase) -> None:
        """Drop the database."""
        self.server.drop_database(self._named(place.name))

    def close(self) -> None:
        """Drop all databases that were created."""
        for database in self._made:
            self.server.drop_database(database)

    def _named(self, name: str) -> str:
        database = f"penstock_bench_{name}"
        self._made.add(database)
        return database

    def _migrated(self, place: BenchDatabase) -> BenchDatabase:
        return _migrated(place)


class SqliteSite(_Kept):
    """Files in one folder."""

    engine: Engine = "sqlite"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def create(self, name: str) -> BenchDatabase:
        """Create a new file with Penstock's schema."""
        return _migrated(self._place(name))

    def copy(self, place: BenchDatabase, name: str) -> BenchDatabase:
        """Copy the file (its log was checkpointed when its last user closed it)."""
        target = self._place(name)
        shutil.copyfile(place.where, target.where)
        # Cached pages of the copy must not be written during a measurement.
        os.sync()
        return target

    def drop(self, place: BenchDatabase) -> None:
        """Remove the file and its companions."""
        for path in Path(place.where).parent.glob(f"{place.name}.db*"):
            path.unlink(missing_ok=True)

    def _place(self, name: str) -> BenchDatabase:
        path = self._folder / f"{name}.db"
        place = BenchDatabase("sqlite", name, f"sqlite:{path}", str(path))
        self.drop(place)
        return place


def _migrated(place: BenchDatabase) -> BenchDatabase:
    store = place.store()
    try:
        store.migrate()
    finally:
        store.close()
    return place


@contextlib.contextmanager
def site_open(engine: Engine) -> Iterator[Site]:
    """Yield a site for the engine and remove it afterwards."""
    if engine == "sqlite":
        # Not the default temporary folder: it may be in memory, where an fsync costs nothing.
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=_disk_folder()) as folder:
            yield SqliteSite(Path(folder))
        return
    url = os.environ.get(URL_VARIABLE, "")
    if url.startswith("postgres"):
        site = PostgresSite(ConfiguredServer(url))
        try:
            yield site
        finally:
            site.close()
        return
    print_progress("launching PostgreSQL")
    with PostgresServer(durable=True, options=SETTINGS) as server:
        yield PostgresSite(server)


def _disk_folder() -> str:
    """Return the temporary folder if it is on a disk, else the current one."""
    temporary = tempfile.gettempdir()
    mounts = Path("/proc/mounts")
    if mounts.exists():
        kinds = {line.split()[1]: line.split()[2] for line in mounts.read_text().splitlines()}
        if kinds.get(temporary) == "tmpfs":
            return str(Path.cwd())
    return temporary
