"""Assembly: the only module that names concrete drivers and puts a process together.

The CLI asks for a store, for the services of a scheduler or of everything, and starts and stops them.
Drivers are imported when they are chosen, so that SQLite users never load psycopg.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from penstock.config import Settings
from penstock.core.errors import SettingsError, StoreUnavailable
from penstock.engine.admitter import Admitter
from penstock.engine.scheduler import Scheduler, SchedulerOptions
from penstock.engine.supervisor import Beat, Loop, Service, Supervisor
from penstock.engine.sweeper import Sweeper
from penstock.engine.upkeep import Pruner, Relay, Sealer
from penstock.events import Events
from penstock.store.api import Store
from penstock.store.sqlite import SqliteStore
from penstock.store.upkeep import Retention

SECOND = 1_000_000


def open_store(settings: Settings, *, migrate: bool = False) -> Store:
    """The store the settings name; with `migrate` its schema is brought up to date first.

    Without it, a store whose schema is behind is refused with the command that mends it.
    """
    url = settings.database_url
    store: Store
    if url.startswith("sqlite:"):
        store = SqliteStore(_sqlite_path(url))
    else:
        store = _postgres(url, settings.pool_size)
    try:
        missing = store.verify()
        if missing and migrate:
            store.migrate()
        elif missing:
            raise StoreUnavailable(
                f"the database lacks {len(missing)} migration(s) ({', '.join(missing)}): "
                "run `penstock db migrate`"
            )
    except BaseException:
        store.close()
        raise
    return store


def scheduler_loops(store: Store, settings: Settings, events: Events) -> list[Loop]:
    """What a scheduler process runs: the tick, admission, sweeping and upkeep."""
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    options = SchedulerOptions(batch=settings.scheduler_batch, catch_up_rate=settings.catch_up_rate)
    retention = Retention(
        history_us=settings.history_retention, journal_us=settings.journal_retention
    )
    services: list[tuple[Service, Beat]] = [
        (Scheduler(store, options, events=events), _beat(SECOND, "schedule")),
        (Admitter(store), _beat(SECOND, "admit")),
        (Sweeper(store, jitter=jitter, events=events), _beat(settings.sweep_interval)),
        (Relay(store), _beat(SECOND, "outbox")),
        (Sealer(store), _beat(settings.seal_interval)),
        (Pruner(store, retention=retention), _beat(settings.prune_interval)),
    ]
    return [Loop(service, beat, store, events=events, jitter=jitter) for service, beat in services]


def supervise(loops: Sequence[Loop]) -> Supervisor:
    """A supervisor over the loops."""
    return Supervisor(loops)


def _beat(interval_us: int, *channels: str) -> Beat:
    return Beat(interval_us=interval_us, channels=channels)


def _sqlite_path(url: str) -> Path | str:
    path = url.removeprefix("sqlite:")
    path = path.removeprefix("//") if path.startswith("///") else path
    if not path:
        raise SettingsError("database_url", "a file after sqlite:", url, "sqlite:penstock.db")
    return ":memory:" if path == ":memory:" else Path(path).expanduser()


def _postgres(url: str, pool_size: int) -> Store:
    try:
        # psycopg is an extra: SQLite users do not have it.
        from penstock.store.postgres import PostgresStore
    except ImportError as error:
        raise SettingsError(
            "database_url",
            "a database whose driver is installed",
            "postgresql",
            f"Install it: pip install 'penstock[postgres]' ({error})",
        ) from error
    return PostgresStore(url, pool_max=pool_size)
