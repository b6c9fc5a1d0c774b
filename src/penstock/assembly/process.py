"""Assembly: the only module that names concrete drivers and builds a process.

The CLI gets a store, or the services of a process, from this module, and starts and stops them.
Drivers are imported when they are chosen, so SQLite users never load psycopg.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.access.secrets import Secrets
from penstock.access.store.names import PipelineInfo
from penstock.access.store.registry import pipeline_list
from penstock.alerts.custom.custom_rules import CustomRules
from penstock.alerts.evaluator import Watchdog
from penstock.alerts.process.reporter import ProcessReporter
from penstock.alerts.records import StoredAlert
from penstock.analytics.aggregator import Aggregator
from penstock.assembly.alerts import build_evaluator, build_sender
from penstock.assembly.api import build_api
from penstock.assembly.audit_sink import build_retention, build_shipper
from penstock.assembly.database import build_probes
from penstock.assembly.endpoints import (
    build_dispatcher,
    check_endpoints,
    endpoint_problems,
)
from penstock.assembly.heads_file import HeadsFile
from penstock.assembly.messaging.pubsub import build_pubsub
from penstock.assembly.messaging.transports import build_bridges
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
)
from penstock.audit.telemetry import Events, Served
from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.store.topics import subscriptions_without_dead_letters
from penstock.client import Client
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import InvalidInput
from penstock.core.naming import HTTP_POOL
from penstock.db.store import Store, StoreView, Transactions
from penstock.detection.freshness import FreshnessProber
from penstock.detection.monitor import Monitor
from penstock.egress.addresses import is_loopback, parse_named_addresses
from penstock.egress.key_file import create_private
from penstock.flows.ladder.ladder import SchedulerFallback, SelfHeal
from penstock.flows.orchestrator import Orchestrator
from penstock.monitoring.health_refresher import HealthRefresher
from penstock.monitoring.records import Overview
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.loading import load_pipelines
from penstock.recovery.backfiller import Backfiller
from penstock.runs.admitter import Admitter
from penstock.runs.store.admission import PauseRow
from penstock.runs.store.lists.pages import RunFilter
from penstock.runs.sweeper import Sweeper
from penstock.schedules.liveness import TICKS_EVERY
from penstock.schedules.scheduler import Scheduler, SchedulerOptions
from penstock.services.binder import Binder
from penstock.services.replayer import Replayer
from penstock.services.store import (
    RunsInProgress,
    SnapshotHolder,
    clock_lead,
    durability_warnings,
    runs_in_progress,
    sessions_clip,
    snapshot_holders,
)
from penstock.services.supervisor import Loop, LoopSchedule, Service, Supervisor
from penstock.services.tick_reporter import TickReporter
from penstock.services.upkeep import OutboxPublisher, Pruner, Sealer, Vacuum
from penstock.slos.declared import parse_slos
from penstock.slos.recorder import SloRecorder
from penstock.usage.meter import UsageMeter
from penstock.worker.context import RunContext
from penstock.worker.endpoints.dispatcher import Dispatcher
from penstock.worker.endpoints.exchange import FakeReply
from penstock.worker.inline import InlineWorker, inline_worker
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker
from penstock.worker.worker_core import WorkerCore

# Records that the CLI and the API show, re-exported because they may not import the store.
__all__ = [
    "InlineWorker",
    "Overview",
    "PauseRow",
    "PipelineInfo",
    "RunContext",
    "RunFilter",
    "Store",
    "StoredAlert",
    "Worker",
    "WorkerOptions",
    "build_api",
    "build_dispatcher_loops",
    "build_pubsub",
    "build_scheduler_loops",
    "build_services",
    "build_supervisor",
    "build_watch_loops",
    "build_worker",
    "check_endpoints",
    "development_key",
    "endpoint_problems",
    "find_subscriptions_without_dead_letters",
    "find_warehouse_problems",
    "inline_worker",
    "load_pipelines",
    "push_problems",
    "rotate_signing_key",
    "run_pending",
]

SECOND = 1_000_000
PROBE_THREADS = 8
HEALTH_THREADS = 16
BINDER_THREADS = 4
"""Number of customers whose bound messages are processed at the same time."""


def run_pending(
    client: Client, pipelines: Sequence[Pipeline], *, reply: FakeReply | None = None
) -> int:
    """Register the pipelines and execute all due runs in this thread; return their number.

    Flows proceed to their end, phase after phase. A flow stays open where a gate waits for data, a
    run waits for its retry, or an external processor has not reported: call it again later. For
    scripts and tests; a long-running program uses `penstock up` or `penstock worker`. Runs of HTTP
    processors are sent under the settings of the environment, unless `reply` is given: a fake
    endpoint that takes the body of a request and returns a status and a body.
    """
    client.register(pipelines)
    store = client.store
    senders = _inline_dispatchers(store, pipelines, reply)
    holder = f"inline:{os.getpid()}"
    orchestrator = Orchestrator(store, client.probe, holder=holder, pipelines=pipelines, threads=0)
    backfiller = Backfiller(store)
    processors = [p for pipeline in pipelines for p in pipeline.processors]
    pools = sorted({p.pool for p in processors if p.runs != "http"})
    workers = [_inline_core(client, pipelines, pool, holder) for pool in pools]
    done = 0
    try:
        is_idle = False
        while not is_idle:
            stepped = orchestrator.run_once()
            ended = sum(_run_ready(store, steps) for steps in workers)
            ended += sum(sender.run_once().started for sender in senders)
            done += ended
            opened = backfiller.run_once().opened
            is_idle = not ended and not stepped.triggers and not opened
    finally:
        for steps in workers:
            steps.close()
        orchestrator.close()
    return done


def _inline_core(client: Client, pipelines: Sequence[Pipeline], pool: str, name: str) -> WorkerCore:
    options = WorkerOptions(
        pool=pool,
        name=name,
        pid=os.getpid(),
        concurrency=50,
        secrets=Secrets(secrets_from_environment(os.environ)),
    )
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    steps = WorkerCore(client.store, pipelines, options, clock=SystemClock(), jitter=jitter)
    steps.open()
    return steps


def _inline_dispatchers(
    store: StoreView, pipelines: Sequence[Pipeline], reply: FakeReply | None
) -> list[Dispatcher]:
    """Return the dispatcher that `run_pending` steps, if there is an HTTP processor."""
    if not any(p.runs == "http" for pipeline in pipelines for p in pipeline.processors):
        return []
    settings = load(os.environ)
    if reply is None:
        check_endpoints(pipelines, settings)
    return [build_dispatcher(store, settings, Events(), reply=reply, is_inline=True)]


def _run_ready(store: StoreView, steps: WorkerCore) -> int:
    """Execute the runs of a pool that are due; return their number."""
    done = 0
    while True:
        Admitter(store).run_once()
        claimed = steps.claim_once(steps.options.concurrency, start=True)
        finishes = [f for held in claimed if (f := steps.execute(held)) is not None]
        steps.ends.add(finishes)
        steps.fair_clock.raise_once()
        while len(steps.ends):
            steps.flush_once()
        steps.heartbeat_once()
        if not claimed:
            return done
        done += len(finishes)


def find_subscriptions_without_dead_letters(store: Transactions) -> list[str]:
    """List subscriptions without a dead-letter topic, which would retry poison messages
    indefinitely.
    """
    return store.read(subscriptions_without_dead_letters)


class WarehouseProblems(NamedTuple):
    """What keeps gates from querying data, with the pipelines concerned.

    unknown: names that have no address in the settings. unusable: what is wrong with an address or
    its library, and the fix. absent: pipelines whose gates need tables of no warehouse.
    """

    unknown: dict[str, list[str]]
    unusable: dict[tuple[str, str], list[str]]
    absent: list[str]


def find_warehouse_problems(store: Transactions, settings: Settings) -> WarehouseProblems | None:
    """Examine the warehouses that pipelines query; None if no pipeline queries one.

    No warehouse is opened.
    """
    # Imported here because most commands probe nothing.
    from penstock.probes.warehouses import (
        is_name,
        lacks_warehouse,
        open_warehouse,
        warehouses_used,
    )

    known = parse_named_addresses(settings.warehouses, "warehouses")
    found, is_used = WarehouseProblems({}, {}, []), False
    for _, pipeline, _, text, *_ in store.read(pipeline_list):
        definition = json.loads(text)
        if lacks_warehouse(definition):
            found.absent.append(pipeline)
        for used in sorted(warehouses_used(definition)):
            is_used = True
            if is_name(used) and used not in known:
                found.unknown.setdefault(used, []).append(pipeline)
                continue
            try:
                open_warehouse(known.get(used, used)).close()
            except InvalidInput as error:
                problem = f"expected {error.expected}, got {error.got}", error.fix or ""
                found.unusable.setdefault(problem, []).append(pipeline)
    return found if is_used or found.absent else None


def find_durability_warnings(store: Transactions) -> list[str]:
    """List the database server's settings under which a committed transaction may be lost."""
    return store.read(durability_warnings)


def find_snapshot_holders(store: Transactions, older_us: int) -> list[SnapshotHolder]:
    """List what has held a snapshot for longer than an age; it keeps dead rows in the tables."""
    return store.read(lambda tx: snapshot_holders(tx, older_us))


def find_clock_lead(store: Transactions) -> int:
    """Return how many microseconds recorded times are ahead of the clock."""
    return store.read(clock_lead)


def clip_times(store: Transactions) -> list[str]:
    """Reset leases that start in the future to now; return the names of their processes."""
    return store.write(sessions_clip)


def find_runs_in_progress(store: Transactions) -> RunsInProgress:
    """Return how many runs are held, since when, and when the last one was claimed."""
    return store.read(runs_in_progress)


def build_worker(
    store: StoreView,
    pipelines: Sequence[Pipeline],
    settings: Settings,
    events: Events,
    on_saturated: Callable[[], None] = lambda: None,
) -> Worker:
    """Build the built-in worker of this process."""
    host, pid = socket.gethostname(), os.getpid()
    options = WorkerOptions(
        pool=settings.pool,
        name=f"{host}:{pid}",
        host=host,
        pid=pid,
        service=settings.service,
        revision=settings.revision,
        concurrency=settings.worker_slots,
        batch_max=settings.worker_batch,
        lease_us=settings.session_lease,
        heartbeat_us=settings.session_beat,
        margin_us=min(5 * SECOND, settings.session_lease // 6),
        drain_us=settings.drain,
        advances=True,
        secrets=Secrets(secrets_from_environment(os.environ), settings.secrets_dir or None),
    )
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    return Worker(
        store,
        pipelines,
        options,
        clock=SystemClock(),
        jitter=jitter,
        events=events,
        on_saturated=on_saturated,
    )


class ScheduledService(NamedTuple):
    """A service, and when its steps run."""

    service: Service
    schedule: LoopSchedule


def build_services(
    store: StoreView,
    settings: Settings,
    events: Events,
    *,
    jitter: Callable[[], float],
    clock: Clock | None = None,
    pipelines: Sequence[Pipeline] = (),
    warehouses: Mapping[str, str] | None = None,
) -> list[ScheduledService]:
    """Build every service except the worker, in the order in which work passes through them.

    warehouses: addresses by the names that pipelines use, in addition to those of the settings.
    """
    has_threads = clock is None
    probes = build_probes(settings, clock or SystemClock(), warehouses)
    reporter = ProcessReporter(store, clock)
    events.subscribe(reporter.on_event, [Served])
    probe = reporter.timed(probes.probe)
    holder = f"{socket.gethostname()}:{os.getpid()}"
    options = SchedulerOptions(batch=settings.scheduler_batch, catch_up_rate=settings.catch_up_rate)
    orchestrator = Orchestrator(
        store,
        probe,
        query=probes.query_items,
        holder=holder,
        pipelines=pipelines,
        threads=PROBE_THREADS if has_threads else 0,
    )
    binder = Binder(store, jitter=jitter, threads=BINDER_THREADS if has_threads else 0)
    checks = build_health_check(settings)
    replayer = Replayer(store, checks, threads=HEALTH_THREADS if has_threads else 0)
    heads = settings.seal_heads_file
    sealer = Sealer(store, heads=HeadsFile(Path(heads)) if heads else None)
    pusher = build_pusher(store, settings, events, jitter=jitter, clock=clock)
    fallback = SchedulerFallback(store, probes.probe, holder=holder, pipelines=pipelines)
    self_heal = SelfHeal(store, probes.probe, holder=holder, pipelines=pipelines)
    made: list[tuple[Service, LoopSchedule]] = [
        (Scheduler(store, options, events=events, clock=clock), _every(SECOND, "schedule")),
        (orchestrator, _every(SECOND, "flows")),
        (Admitter(store), _every(SECOND, "admit")),
        (Sweeper(store, jitter=jitter, events=events), _every(settings.sweep_interval)),
        (DeliverySweeper(store, jitter=jitter), _every(SECOND)),
        (pusher, _every(SECOND, "push")),
        (OutboxPublisher(store), _every(SECOND, "outbox")),
        (binder, _every(SECOND, "bound")),
        (replayer, _every(60 * SECOND)),
        (sealer, _every(settings.seal_interval)),
        (Pruner(store, retention=build_retention(settings)), _every(settings.prune_interval)),
        (Vacuum(store), _every(SECOND)),
        (fallback, _every(10 * SECOND)),
        (self_heal, _every(60 * SECOND)),
        (Backfiller(store), _every(SECOND, "backfill")),
        (build_evaluator(store, settings, clock=clock), _every(5 * SECOND)),
        (build_sender(store, settings, jitter=jitter, clock=clock), _every(SECOND)),
        (Monitor(store), _every(10 * SECOND)),
        *((one, _every(SECOND // 4)) for one in build_bridges(store, settings, clock=clock)),
        (Aggregator(store), _every(60 * SECOND)),
        *_measuring(store, settings, pipelines, reporter),
        (FreshnessProber(store, probes.probe), _every(10 * SECOND)),
    ]
    if shipping := build_shipper(store, settings, clock):
        made.append((shipping[0], _every(shipping[1])))
    return [ScheduledService(service, schedule) for service, schedule in made]


def _measuring(
    store: StoreView,
    settings: Settings,
    pipelines: Sequence[Pipeline],
    reporter: ProcessReporter,
) -> list[tuple[Service, LoopSchedule]]:
    """Build the services that record service levels, usage and health, and rules in Python."""
    client = Client(store, actor="alert-rule")
    return [
        (SloRecorder(store, parse_slos(settings.slos)), _every(10 * SECOND)),
        (UsageMeter(store), _every(5 * SECOND)),
        (CustomRules(store, pipelines, client), _every(15 * SECOND)),
        (reporter, _every(10 * SECOND)),
        (HealthRefresher(store), _every(5 * SECOND)),
    ]


def build_scheduler_loops(
    store: StoreView, settings: Settings, events: Events, pipelines: Sequence[Pipeline] = ()
) -> list[Loop]:
    """Build the loops of a scheduler process: tick, cascade, admission, sweeping and upkeep."""
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    made = build_services(store, settings, events, jitter=jitter, pipelines=pipelines)
    seconds = settings.drain / SECOND
    loops = [Loop(*one, store, events=events, jitter=jitter, drain_seconds=seconds) for one in made]
    ticks = TickReporter(store, loops)
    every = _every(TICKS_EVERY)
    last = Loop(ticks, every, store, events=events, jitter=jitter, drain_seconds=seconds)
    return [*loops, last]


def build_dispatcher_loops(
    store: StoreView, settings: Settings, events: Events, callback_url: str | None = None
) -> list[Loop]:
    """Build the loop that sends the runs of HTTP processors.

    callback_url: where endpoints report if `public_url` is not set.
    """
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    made = build_dispatcher(store, settings, events, callback_url=callback_url)
    schedule = _every(SECOND, f"runs:{HTTP_POOL}")
    seconds = settings.drain / SECOND
    return [Loop(made, schedule, store, events=events, jitter=jitter, drain_seconds=seconds)]


def build_watch_loops(store: StoreView, settings: Settings, events: Events) -> list[Loop]:
    """Build the loops that watch the alert evaluator from a process that does not run it.

    That process also sends notices: otherwise nothing would report that the schedulers have
    stopped.
    """
    jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    reporter = ProcessReporter(store)
    events.subscribe(reporter.on_event, [Served])
    sender = build_sender(store, settings, jitter=jitter)
    made: list[Service] = [Watchdog(store), sender, reporter]
    intervals = (15 * SECOND, 5 * SECOND, 10 * SECOND)
    seconds = settings.drain / SECOND
    return [
        Loop(service, _every(interval), store, events=events, jitter=jitter, drain_seconds=seconds)
        for service, interval in zip(made, intervals, strict=True)
    ]


def development_key(client: Client, settings: Settings) -> str | None:
    """Return the API key for local development, stored next to the SQLite file.

    None unless the API listens on loopback and the database is a file. The key file is readable by
    its owner only.
    """
    file = key_file(settings.database_url)
    if file is None or not is_loopback(settings.api_host):
        return None
    if file.is_file():
        text = file.read_text("utf-8", "replace").strip()
        if client.keys.authenticate(text) is not None:
            return text
    file.unlink(missing_ok=True)
    made = client.as_actor("up").keys.create("development", "admin")
    assert made.key is not None
    create_private(file, f"{made.key}\n".encode())
    return made.key


def build_supervisor(loops: Sequence[Loop]) -> Supervisor:
    """Return a supervisor over the loops."""
    return Supervisor(loops)


def _every(interval_us: int, *channels: str) -> LoopSchedule:
    return LoopSchedule(interval_us=interval_us, channels=channels)
