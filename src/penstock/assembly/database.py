"""Access to the database: the stores and clients that the settings name.

Drivers are imported when they are chosen, so SQLite users never load psycopg. Commands load this
module without the services of a process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from penstock.assembly.settings import Settings, load, sqlite_path, store_file
from penstock.audit.telemetry import Events, ReplicaRead
from penstock.client import Client
from penstock.core.clock import SECOND, Clock, SystemClock
from penstock.core.errors import SchemaMismatch, SettingsError, StoreUnavailable
from penstock.core.redact import MASK
from penstock.db.postgres.connect_failure import (
    VERSION_MIN,
    explain_failure,
    is_too_old,
    show_version,
)
from penstock.db.postgres_url import parse_postgres_url, standby_preferred
from penstock.db.replica.check import ReplicaStatus
from penstock.db.replica.reads import ReplicatedStore, Server
from penstock.db.sqlite.store import SAFE_VERSION, SqliteStore
from penstock.db.store import Store, StoreView
from penstock.egress.addresses import parse_named_addresses

if TYPE_CHECKING:
    from penstock.db.postgres.connector import Pooler
    from penstock.flows.gates.evidence import Observation
    from penstock.flows.gates.probe_request import ProbeRequest
    from penstock.probes.runner import ProbeRunner

__all__ = [
    "build_probes", "connect", "describe_database", "migrate_store", "open_client",
    "open_default_store", "open_store", "sqlite_versions",
]  # fmt: skip

Migrate = Literal["never", "file", "new", "always"]
"""When opening a store changes its schema.

file: an SQLite file, which only this machine uses, is created and updated. On PostgreSQL an
operator decides when, so missing migrations are an error. new: also, tables are created in an
empty PostgreSQL database.
"""

REFUSED_SETTINGS: Final = "unsupported startup parameter"
"""Error of PgBouncer for a connection that starts with server settings."""


def open_store(
    settings: Settings, *, migrate: Migrate = "never", clock: Clock | None = None
) -> Store:
    """Open the store that the settings name, and update its schema first if `migrate` allows it.

    Otherwise a store with an outdated schema is rejected, and the error names the command that
    updates it. A `clock` replaces the database's time (simulation and demo only).
    """
    store = _connect(settings, clock)
    try:
        missing = store.verify()
        if missing and _may_migrate(migrate, missing, settings):
            store.migrate()
        elif missing:
            raise SchemaMismatch(_outdated(missing, settings))
    except BaseException:
        store.close()
        raise
    return store


def _may_migrate(migrate: Migrate, missing: list[str], settings: Settings) -> bool:
    if migrate in ("never", "always"):
        return migrate == "always"
    is_file = settings.database_url.startswith("sqlite:")
    return is_file or (migrate == "new" and _is_empty(missing))


def _is_empty(missing: list[str]) -> bool:
    """Whether a database without these migrations has no tables of Penstock."""
    return missing[0].startswith("0001_")


def _outdated(missing: list[str], settings: Settings) -> str:
    where, last = describe_database(settings.database_url), missing[-1]
    if _is_empty(missing):
        return (
            f"{where} has no tables of Penstock. Create them with `penstock db migrate`, or name "
            "another database with --database-url or PENSTOCK_DATABASE_URL."
        )
    names = missing[0] if len(missing) == 1 else f"{len(missing)}, {missing[0]} to {last}"
    return f"{where} lacks migrations of this version ({names}): run `penstock db migrate`"


def open_default_store() -> Store:
    """Open the store that the environment's settings name; an empty database is created."""
    return open_store(load(os.environ), migrate="new")


def migrate_store(settings: Settings) -> list[str]:
    """Update the schema; return the migrations applied."""
    store = _connect(settings)
    try:
        return store.migrate()
    finally:
        store.close()


@contextlib.contextmanager
def open_client(
    settings: Settings, *, actor: str, migrate: Migrate = "never", events: Events | None = None
) -> Iterator[Client]:
    """Open a client for one command. With "never", a missing SQLite file is not created.

    events: the stream on which facts are emitted after their commit.
    """
    url = settings.database_url
    if url.startswith("sqlite:") and migrate == "never":
        path = sqlite_path(url)
        if isinstance(path, Path) and not path.exists():
            raise StoreUnavailable(
                f"there is no database at {path}. Start with `penstock up`, create it with "
                "`penstock db migrate`, or specify another with --database-url."
            )
    store = open_store(settings, migrate=migrate)
    store.events = events
    probes = _LazyProbes(settings)
    try:
        yield Client(store, actor=actor, probe=probes)
    finally:
        probes.close()
        store.close()


@contextlib.contextmanager
def connect(database_url: str | None = None, *, actor: str = "python") -> Iterator[Client]:
    """Open a client for a program; an empty database is created, an SQLite file also migrated.

    Without a URL the settings of the environment apply, as on the command line.
    """
    settings = load(os.environ, overrides={"database_url": database_url})
    with open_client(settings, actor=actor, migrate="new") as client:
        yield client


def describe_database(url: str) -> str:
    """Describe the database for display: an absolute path, or a URL without user and password."""
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        return f"sqlite:{path.resolve() if isinstance(path, Path) else path}"
    return f"{url.partition('://')[0]}://{parse_postgres_url(url).address}"


def free_disk(url: str) -> tuple[int, int] | None:
    """Return (free, total) bytes of the disk that holds a SQLite file; None on another engine."""
    file = store_file(url)
    if file is None:
        return None
    total, _, free = shutil.disk_usage(file.resolve().parent)
    return free, total


def sqlite_versions(store: StoreView) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (the SQLite version in use, the oldest safe one); None on another engine."""
    return (store.sqlite_version, SAFE_VERSION) if isinstance(store, SqliteStore) else None


def find_pooler(settings: Settings) -> Pooler | None:
    """Return the kind of pooler that PostgreSQL is reached through; None on another engine."""
    if settings.database_url.startswith("sqlite:"):
        return None
    # psycopg is an extra; here it is installed, because the store is open.
    from penstock.db.postgres.pooler_detection import detect_pooler

    return detect_pooler(settings.database_url)


def _connect(settings: Settings, clock: Clock | None = None) -> Store:
    url = settings.database_url
    if url.startswith("sqlite:"):
        preallocates_wal = settings.sqlite_preallocation == "on"
        return SqliteStore(sqlite_path(url), clock, preallocates_wal=preallocates_wal)
    return _postgres(settings, clock)


def _postgres(settings: Settings, clock: Clock | None) -> Store:
    url = settings.database_url
    pooler = cast("Pooler", settings.database_pooler)
    try:
        # psycopg is an extra: SQLite installations do not have it.
        import psycopg

        # The same extra.
        from penstock.db.postgres.connector import Connector
        from penstock.db.postgres.pipeline import PostgresSession  # as above
        from penstock.db.postgres.plain import PlainSession  # as above
        from penstock.db.postgres.store import SESSION, PostgresStore  # as above
    except ImportError as error:
        raise SettingsError(
            "database_url",
            "a database whose driver is installed",
            "postgresql",
            f"Install it: pip install 'penstock-engine[postgres]' ({error})",
        ) from error
    is_pipelined = settings.postgres_pipeline == "on"
    session = PostgresSession if is_pipelined else PlainSession
    try:
        # Connect once directly: the pool would try for 10 s and then not report the reason.
        first = Connector(url, "penstock", session, pooler).open(settings=SESSION)
    except psycopg.ProgrammingError as error:
        why = " ".join(_masked(error, url).split())
        raise SettingsError("database_url", "a URL that libpq accepts", why) from None
    except psycopg.Error as error:
        if REFUSED_SETTINGS in str(error):
            fix = "Set PENSTOCK_DATABASE_POOLER, see docs/operations/postgresql.md."
            raise SettingsError(
                "database_pooler", "session or transaction, behind a pooler", pooler, fix
            ) from None
        if "unrecognized configuration parameter" in str(error):
            raise _too_old("an older version") from None
        why, fix = explain_failure(_masked(error, url))
        text = f"cannot reach {describe_database(url)}: {why}. {fix}"
        raise StoreUnavailable(text) from error
    version = first.info.server_version
    if is_too_old(version):
        first.close()
        raise _too_old(show_version(version))
    open_postgres = partial(
        PostgresStore,
        clock=clock,
        pool_max=settings.pool_size,
        is_pipelined=is_pipelined,
        pooler=pooler,
    )
    store = open_postgres(url, direct=settings.database_direct_url)
    store.adopt(first)
    if not settings.database_read_url:
        return store
    replica = open_postgres(standby_preferred(settings.database_read_url), name="penstock-read")
    return _replicated(store, replica, settings)


def _replicated(primary: Store, replica: Store, settings: Settings) -> Store:
    """Return the store with a read replica; each read that may use it emits an event."""
    store = ReplicatedStore(primary, replica, lag_max_us=settings.database_read_lag)

    def report(server: Server, status: ReplicaStatus) -> None:
        if isinstance(store.events, Events):
            lag = None if status.lag_us is None else status.lag_us / SECOND
            store.events.emit(ReplicaRead(server, lag))

    store.on_read = report
    return store


def find_replica(store: StoreView) -> ReplicaStatus | None:
    """Return whether the read replica is used, and its lag; None if there is none."""
    return store.check.wait() if isinstance(store, ReplicatedStore) else None


def _too_old(version: str) -> SettingsError:
    expected = f"PostgreSQL {VERSION_MIN} or newer"
    fix = "Upgrade that server, or use a newer one."
    return SettingsError("database_url", expected, version, fix)


def _masked(error: Exception, url: str) -> str:
    """Return the driver's error message, without the passwords of the URL."""
    reason = str(error)
    for secret in parse_postgres_url(url).secrets:
        reason = reason.replace(secret, MASK)
    return reason


def build_probes(
    settings: Settings, clock: Clock, more: Mapping[str, str] | None = None
) -> ProbeRunner:
    """Build the prober for the named warehouses."""
    # Imported here because most commands probe nothing.
    from penstock.probes.runner import ProbeRunner

    names = {**parse_named_addresses(settings.warehouses, "warehouses"), **(more or {})}
    return ProbeRunner(clock, names=names, own=store_file(settings.database_url))


class _LazyProbes:
    """Probes data for gates; nothing is loaded before the first probe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner: ProbeRunner | None = None

    def __call__(self, request: ProbeRequest) -> list[Observation]:
        """Return the observations of a request."""
        if self._runner is None:
            self._runner = build_probes(self._settings, SystemClock())
        return list(self._runner.probe(request))

    def close(self) -> None:
        """Close the connections to warehouses."""
        if self._runner is not None:
            self._runner.close()
