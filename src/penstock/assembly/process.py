"""Assembly: the only module that names concrete drivers and builds a process.

The CLI gets from here a store, or the services of a process, and starts and stops them. Drivers are
imported when they are chosen, so SQLite users never load psycopg.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from penstock.access.secrets import Secrets
from penstock.access.store.names import PipelineInfo
from penstock.assembly.api import build_api
from penstock.assembly.push import (
    build_health_check,
    build_pusher,
    push_problems,
    rotate_signing_key,
)
from penstock.assembly.settings import (
    Settings,
    key_file,
    load,
    secrets_from_environment,
    sqlite_path,
    store_file,
)
from penstock.audit.rows import AlertRow
from penstock.audit.telemetry import Events
from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.store.topics import subscriptions_without_dead_letters
from penstock.client import Client
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import SchemaMismatch, SettingsError, StoreUnavailable
from penstock.core.naming import PoolKey
from penstock.db.sqlite.store import SAFE_VERSION, SqliteStore
from penstock.db.store import Store, StoreView, Transactions
from penstock.egress.addresses import is_loopback, parse_named_addresses
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.rows import FlowFilter
from penstock.flows.rows import PhaseRow as PhaseRow
from penstock.monitoring.store import Overview
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.loading import load_pipelines
from penstock.probes.runner import ProbeRunner
from penstock.runs.admitter import Admitter
from penstock.runs.store.admission import PauseRow
from penstock.runs.store.leases import Session
from penstock.runs.store.runs import RunFilter, run_count_ready
from penstock.runs.sweeper import Sweeper
from penstock.schedules.scheduler import Scheduler, SchedulerOptions
from penstock.schedules.store.schedule import schedule_next_at
from penstock.services.binder import Binder
from penstock.services.replayer import Replayer
from penstock.services.store import Retention, durability_warnings
from penstock.services.supervisor import Loop, LoopSchedule, Service, Supervisor
from penstock.services.upkeep import OutboxPublisher, Pruner, Sealer
from penstock.worker.context import RunContext
from penstock.worker.inline import InlineWorker, inline_worker
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker
from penstock.worker.worker_core import WorkerCore

# Records that the CLI and the API show, re-exported because they may not import the store.
__all__ = [
    "AlertRow",
    "FlowFilter",
    "InlineWorker",
    "Overview",
    "PauseRow",
    "PhaseRow",
    "PipelineInfo",
    "RunContext",
    "RunFilter",
    "Session",
    "Store",
    "Worker",
    "WorkerOptions",
    "build_api",
    "build_scheduler_loops",
    "build_services",
    "build_supervisor",
    "build_worker",
    "connect",
    "describe_database",
    "development_key",
    "earliest_due",
    "find_subscriptions_without_dead_letters",
    "inline_worker",
    "load_pipelines",
    "migrate_store",
    "open_client",
    "open_store",
    "push_problems",
    "ready_count",
    "rotate_signing_key",
    "run_pending",
    "sqlite_versions",
]

SECOND = 1_000_000
PROBE_THREADS = 8


def open_store(settings: Settings, *, migrate: bool = False, clock: Clock | None = None) -> Store:
    """Open the store that the settings name; with `migrate`, update its schema first.

    Otherwise a store with an outdated schema is refused, and the error names the command that
    updates it. A `clock` replaces the database's time (simulation and demo only).
    """
    store = _connect(settings, clock)
    try:
        missing = store.verify()
        if missing and migrate:
            store.migrate()
        elif missing:
            raise SchemaMismatch(
                f"the database lacks {len(missing)} migration(s) ({', '.join(missing)}): "
                "run `penstock db migrate`"
            )
    except BaseException:
        store.close()
        raise
    return store


def open_default_store() -> Store:
    """The migrated store that the environment's settings name."""
    return open_store(load(os.environ), migrate=True)


def migrate_store(settings: Settings) -> list[str]:
    """Update the schema; return the migrations applied."""
    store = _connect(settings)
    try:
        return store.migrate()
    finally:
        store.close()


@contextlib.contextmanager
def open_client(settings: Settings, *, actor: str, create: bool = False) -> Iterator[Client]:
    """Open a client for one command. A missing SQLite file is created only with `create`."""
    url = settings.database_url
    if url.startswith("sqlite:") and not create:
        path = sqlite_path(url)
        if isinstance(path, Path) and not path.exists():
            raise StoreUnavailable(
                f"there is no database at {path}. Start with `penstock up`, create it with "
                "`penstock db migrate`, or name another with --database-url."
            )
    store = open_store(settings, migrate=create)
    probes = _probes(settings, SystemClock())
    try:
        yield Client(store, actor=actor, probe=probes.probe)
    finally:
        probes.close()
        store.close()


@contextlib.contextmanager
def connect(database_url: str | None = None, *, actor: str = "python") -> Iterator[Client]:
    """Open a client for a program; the database is created or migrated first.

    Without a URL the settings of the environment apply, as on the command line.
    """
    settings = load(os.environ, overrides={"database_url": database_url})
    with open_client(settings, actor=actor, create=True) as client:
        yield client


def run_pending(client: Client, pipelines: Sequence[Pipeline]) -> int:
    """Register the pipelines and execute all due runs in this thread; return their number.

    For scripts and tests; a long-running program uses `penstock up` or `penstock worker`. Failed
    runs are retried later as usual, not by this call.
    """
    client.register(pipelines)
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    done = 0
    for pool in sorted({p.pool for pipeline in pipelines for p in pipeline.processors}):
        options = WorkerOptions(
            pool=pool,
            name=f"inline:{os.getpid()}",
            pid=os.getpid(),
            concurrency=50,
            secrets=Secrets(secrets_from_environment(os.environ)),
        )
        steps = WorkerCore(client.store, pipelines, options, clock=SystemClock(), jitter=jitter)
        steps.open()
        try:
            while True:
                Admitter(client.store).run_once()
                claimed = steps.claim_once(options.concurrency, start=True)
                finishes = [f for held in claimed if (f := steps.execute(held)) is not None]
                steps.ends.add(finishes)
                steps.fair_clock.raise_once()
                while len(steps.ends):
                    steps.flush_once()
                done += len(finishes)
                steps.heartbeat_once()
                if not claimed:
                    break
        finally:
            steps.close()
    return done


def describe_database(url: str) -> str:
    """Describe the database for display: an absolute path, or a URL without its password."""
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        return f"sqlite:{path.resolve() if isinstance(path, Path) else path}"
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username else ""
    return urlunsplit((parts.scheme, user + host, parts.path, "", ""))


def earliest_due(store: Transactions) -> tuple[int | None, int]:
    """Return (the earliest scheduled time that has not started, now)."""
    return store.read(schedule_next_at)


def ready_count(store: Transactions, pool: int, limit: int = 10_000) -> int:
    """Count the runs of a pool that wait for a worker, up to `limit`."""
    return store.read(lambda tx: run_count_ready(tx, PoolKey(pool), limit))


def find_subscriptions_without_dead_letters(store: Transactions) -> list[str]:
    """List subscriptions without a dead-letter topic, where poison would be retried for ever."""
    return store.read(subscriptions_without_dead_letters)


def find_durability_warnings(store: Transactions) -> list[str]:
    """List the database server's settings under which a committed transaction may be lost."""
    return store.read(durability_warnings)


def sqlite_versions(store: StoreView) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (the SQLite version in use, the oldest safe one); None on another engine."""
    return (store.sqlite_version, SAFE_VERSION) if isinstance(store, SqliteStore) else None


def build_worker(
    store: StoreView, pipelines: Sequence[Pipeline], settings: Settings, events: Events
) -> Worker:
    """Build the built-in worker of this process."""
    host, pid = socket.gethostname(), os.getpid()
    options = WorkerOptions(
        pool=settings.pool,
        name=f"{host}:{pid}",
        host=host,
        pid=pid,
        concurrency=settings.worker_slots,
        batch_max=settings.worker_batch,
        lease_us=settings.session_lease,
        heartbeat_us=settings.session_beat,
        margin_us=min(5 * SECOND, settings.session_lease // 6),
        drain_us=settings.drain,
        secrets=Secrets(secrets_from_environment(os.environ), settings.secrets_dir or None),
    )
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    return Worker(store, pipelines, options, clock=SystemClock(), jitter=jitter, events=events)


def build_services(
    store: StoreView,
    settings: Settings,
    events: Events,
    *,
    jitter: Callable[[], float],
    clock: Clock | None = None,
    pipelines: Sequence[Pipeline] = (),
    warehouses: Mapping[str, str] | None = None,
) -> list[Service]:
    """Build every service except the worker, in the order in which work passes on.

    warehouses: addresses by the names that pipelines use, in addition to those of the settings.
    """
    probes = _probes(settings, clock or SystemClock(), warehouses)
    holder = f"{socket.gethostname()}:{os.getpid()}"
    options = SchedulerOptions(batch=settings.scheduler_batch, catch_up_rate=settings.catch_up_rate)
    retention = Retention(
        history_us=settings.history_retention,
        journal_us=settings.journal_retention,
        flows_us=settings.flows_retention,
        logs_us=settings.logs_retention,
    )
    return [
        Scheduler(store, options, events=events, clock=clock),
        Orchestrator(
            store,
            probes.probe,
            holder=holder,
            pipelines=pipelines,
            threads=PROBE_THREADS if clock is None else 0,
        ),
        Admitter(store),
        Sweeper(store, jitter=jitter, events=events),
        DeliverySweeper(store, jitter=jitter),
        build_pusher(store, settings, events, jitter=jitter, clock=clock),
        OutboxPublisher(store),
        Binder(store, jitter=jitter),
        Replayer(store, build_health_check(settings)),
        Sealer(store),
        Pruner(store, retention=retention),
    ]


def build_scheduler_loops(
    store: StoreView, settings: Settings, events: Events, pipelines: Sequence[Pipeline] = ()
) -> list[Loop]:
    """Build the loops of a scheduler process: tick, cascade, admission, sweeping and upkeep."""
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    schedules = (
        _loop_schedule(SECOND, "schedule"),
        _loop_schedule(SECOND, "flows"),
        _loop_schedule(SECOND, "admit"),
        _loop_schedule(settings.sweep_interval),
        _loop_schedule(SECOND),
        _loop_schedule(SECOND, "push"),
        _loop_schedule(SECOND, "outbox"),
        _loop_schedule(SECOND, "bound"),
        _loop_schedule(60 * SECOND),
        _loop_schedule(settings.seal_interval),
        _loop_schedule(settings.prune_interval),
    )
    made = build_services(store, settings, events, jitter=jitter, pipelines=pipelines)
    return [
        Loop(service, schedule, store, events=events, jitter=jitter)
        for service, schedule in zip(made, schedules, strict=True)
    ]


def development_key(client: Client, settings: Settings) -> str | None:
    """Return the API key for local development, stored beside the SQLite file.

    None unless the API listens on loopback and the database is a file. The key file is readable by
    its owner only.
    """
    file = key_file(settings.database_url)
    if file is None or not is_loopback(settings.api_host):
        return None
    if file.is_file():
        text = file.read_text("utf-8").strip()
        if client.keys.authenticate(text) is not None:
            return text
        file.unlink()
    made = client.keys.create("development", "admin", actor="up")
    assert made.text is not None
    file.touch(mode=0o600)
    file.write_text(made.text + "\n", "utf-8")
    return made.text


def build_supervisor(loops: Sequence[Loop]) -> Supervisor:
    """Return a supervisor over the loops."""
    return Supervisor(loops)


def _probes(settings: Settings, clock: Clock, more: Mapping[str, str] | None = None) -> ProbeRunner:
    names = {**parse_named_addresses(settings.warehouses, "warehouses"), **(more or {})}
    return ProbeRunner(clock, names=names, own=store_file(settings.database_url))


def _loop_schedule(interval_us: int, *channels: str) -> LoopSchedule:
    return LoopSchedule(interval_us=interval_us, channels=channels)


def _connect(settings: Settings, clock: Clock | None = None) -> Store:
    url = settings.database_url
    if url.startswith("sqlite:"):
        preallocates_wal = settings.sqlite_preallocation == "on"
        return SqliteStore(sqlite_path(url), clock, preallocates_wal=preallocates_wal)
    return _postgres(settings, clock)


def _postgres(settings: Settings, clock: Clock | None) -> Store:
    url = settings.database_url
    try:
        # psycopg is an extra: SQLite installations do not have it.
        import psycopg

        # The same extra.
        from penstock.db.postgres.store import PostgresStore
    except ImportError as error:
        raise SettingsError(
            "database_url",
            "a database whose driver is installed",
            "postgresql",
            f"Install it: pip install 'penstock[postgres]' ({error})",
        ) from error
    try:
        # Connect once directly: the pool would try for 10 s and then not report the reason.
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise StoreUnavailable(
            f"cannot reach {describe_database(url)}: {reason} "
            "Check --database-url and that the server is running."
        ) from error
    is_pipelined = settings.postgres_pipeline == "on"
    return PostgresStore(url, clock, pool_max=settings.pool_size, is_pipelined=is_pipelined)
