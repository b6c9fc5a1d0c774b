"""`penstock up`, `api`, `worker` and `scheduler`: processes that run until a signal stops them.

A worker with too many executions that cannot be stopped drains, then the process replaces itself.
The first SIGTERM or SIGINT drains the process: it claims no new runs and waits for its active runs,
at most for the setting `drain`. The second one exits immediately; after the lease expires, sweepers
recover the claimed runs.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from penstock.assembly.reloading import SourceWatch
from penstock.cli.app import App, Command, setting_options
from penstock.cli.logging import EventLog
from penstock.core.clock import format_duration, set_from_handler, wait_for_handler
from penstock.core.errors import SettingsError
from penstock.egress.addresses import is_loopback

if TYPE_CHECKING:
    from penstock.assembly.database import Migrate
    from penstock.assembly.settings import Settings

INTERRUPTED_EXIT_CODE = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The components of a process; `command` names it in output and as the actor."""

    command: str
    services: bool = False
    worker: bool = False
    api: bool = False
    reload: bool = False

    @property
    def migrate(self) -> Migrate:
        """When the process changes the schema: one that is all of Penstock always does."""
        return "always" if self.command == "up" else "file"


class _Started(NamedTuple):
    """What a process has started: pipelines and services by name, its API and development key.

    pubsub: host and port that serve Google Pub/Sub's services.
    """

    pipelines: list[str]
    services: list[str]
    url: str | None
    key: str | None
    pubsub: str | None = None
    metrics: str | None = None
    """URL at which a process without an API serves its metrics."""


class _PipelinesCommand(Command):
    """Suggests `--pipelines` for files and modules that are passed as arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; the error for pipelines without their option has the whole option."""
        typed = list(args)  # click empties its list
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if type(error) is not click.UsageError:
                raise
            given, extra, _ = self.make_parser(ctx).parse_args(args=typed)
            if not extra or not all(_is_target(one) for one in extra):
                raise
            targets = shlex.quote(",".join([*(given.get("pipelines") or ()), *extra]))
            text = f"{error.format_message()}. Did you mean --pipelines {targets}?"
            raise click.UsageError(text, ctx) from None


def _is_target(word: str) -> bool:
    """Return whether an argument looks like a file or a module of pipelines."""
    return "." in word or ":" in word or Path(f"{word}.py").is_file()


RELOAD = click.option(
    "--reload",
    is_flag=True,
    help="Restart when a pipeline's file changes, for development; active runs end first.",
)


@click.command("up", cls=_PipelinesCommand)
@setting_options(
    "pipelines", "pool", "worker_slots", "api_host", "api_port", "pubsub_port", "pubsub_project"
)
@click.option("--no-api", is_flag=True, help="Run without the HTTP API.")
@RELOAD
@click.pass_obj
def up(app: App, /, *, no_api: bool, reload: bool, **given: Any) -> None:
    """Run the scheduler, all services, a worker and the API in one process.

    Creates or migrates the database first. On Ctrl-C the process claims no new runs, waits for its
    active runs (at most for the setting `drain`) and exits; a second Ctrl-C stops it immediately.
    """
    settings = app.database_settings(**given)
    parts = _Parts(command="up", services=True, worker=True, api=not no_api, reload=reload)
    _serve(app, settings, parts)


@click.command("api", cls=_PipelinesCommand)
@setting_options("pipelines", "api_host", "api_port", "pubsub_port", "pubsub_project")
@click.pass_obj
def api(app: App, /, **given: Any) -> None:
    """Serve the HTTP API only; with --pubsub-port also Google Pub/Sub's services.

    Any number of replicas can run on one database.
    """
    settings = app.database_settings(**given)
    serve_api(app, settings)


@click.command("worker", cls=_PipelinesCommand)
@setting_options("pipelines", "pool", "worker_slots", "metrics_port")
@RELOAD
@click.pass_obj
def worker(app: App, /, *, reload: bool, **given: Any) -> None:
    """Run a worker that claims and executes runs.

    Any number of workers can run on one database. A PostgreSQL database that is empty or lacks
    migrations is refused: run `penstock db migrate` first. An SQLite file is created and migrated.
    """
    settings = app.database_settings(**given)
    if not settings.pipelines:
        fix = "penstock worker --pipelines my_pipelines.py, or set PENSTOCK_PIPELINES."
        raise SettingsError("pipelines", "a module or file that declares pipelines", None, fix)
    _serve(app, settings, _Parts(command="worker", worker=True, reload=reload))


@click.command("scheduler", cls=_PipelinesCommand)
@setting_options("pipelines", "metrics_port")
@click.pass_obj
def scheduler(app: App, /, **given: Any) -> None:
    """Run the scheduler and the other services, but no worker.

    Any number of replicas can run on one database: each occurrence starts exactly once. A
    PostgreSQL database that is empty or lacks migrations is refused: run `penstock db migrate`
    first. An SQLite file is created and migrated.
    """
    settings = app.database_settings(**given)
    _serve(app, settings, _Parts(command="scheduler", services=True))


def serve_api(app: App, settings: Settings) -> None:
    """Serve the API and the dashboard until a signal."""
    _serve(app, settings, _Parts(command="api", api=True))


def _serve(app: App, settings: Settings, parts: _Parts) -> None:
    """Build the process, start it, wait for a signal and stop it."""
    # Imported here because it loads the store, the services and the users' modules.
    from penstock.assembly.database import open_client
    from penstock.assembly.process import (  # as above
        build_api,
        build_dispatcher_loops,
        build_pubsub,
        build_scheduler_loops,
        build_supervisor,
        build_watch_loops,
        build_worker,
        check_endpoints,
        development_key,
        load_pipelines,
    )
    from penstock.assembly.telemetry import process_telemetry  # as above
    from penstock.audit.telemetry import Events  # as above

    declared = load_pipelines(settings.pipelines)
    check_endpoints(declared, settings)
    watch = SourceWatch(settings.pipelines) if parts.reload else None
    events = Events()
    stopping, saturated = threading.Event(), threading.Event()

    def replace() -> None:
        saturated.set()
        stopping.set()

    with (
        open_client(settings, actor=parts.command, migrate=parts.migrate, events=events) as client,
        _signals(stopping) as received,
        process_telemetry(client, settings, events, declared, has_api=parts.api) as telemetry,
        EventLog.attached(app, settings, events, client, telemetry.log),
    ):
        client.register(declared)
        # Before a port is opened: these refuse settings whose library is not installed.
        if parts.services:
            loops = build_scheduler_loops(client.store, settings, events, declared)
        else:
            loops = build_watch_loops(client.store, settings, events)
        pubsub = build_pubsub(client, settings) if parts.api or parts.services else None
        server = build_api(client, settings, events, telemetry.metrics) if parts.api else None
        url = None if server is None else server.url
        # An endpoint on this machine reaches the API of this process without further settings.
        callback_url = url if is_loopback(settings.api_host) else None
        if parts.services or parts.worker:
            loops += build_dispatcher_loops(client.store, settings, events, callback_url)
        supervisor = build_supervisor(loops)
        made = None
        if parts.worker:
            made = build_worker(client.store, declared, settings, events, replace)
        key = development_key(client, settings) if parts.api else None
        running = [one for one in (supervisor, made, server, pubsub) if one is not None]
        for one in running:
            one.start()
        gc.freeze()  # full collections took 50 ms: most objects live as long as the process
        names, services = sorted(one.name for one in declared), [loop.name for loop in loops]
        address = None if pubsub is None else pubsub.address
        started = _Started(names, services, url, key, address, telemetry.url)
        _introduce(app, settings, parts, started)
        is_changed = _wait(stopping, watch, app.hint)
        why = "Replacing this process" if saturated.is_set() or is_changed else "Stopping"
        app.hint(f"{why}: waiting for active runs; press Ctrl-C again to stop immediately.")
        stop_together(running)
    app.hint("A file has changed: restarting." if is_changed else "Stopped.")
    if (saturated.is_set() or is_changed) and not received and _is_main_thread():
        # Threads that ignore the stop request end with the old process image.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


class Component(Protocol):
    """Part of a process, such as the worker or the API server."""

    def stop(self) -> None:
        """Finish what is active, then end."""
        ...


def stop_together(running: Sequence[Component]) -> None:
    """Stop all components at the same time, so that the process ends with the slowest of them."""
    with ThreadPoolExecutor(len(running)) as stopping:
        list(stopping.map(lambda one: one.stop(), running))


def _wait(
    stopping: threading.Event, watch: SourceWatch | None, report: Callable[[str], None]
) -> bool:
    """Wait for a signal, or with `--reload` for a change; return True for a change."""
    if watch is not None:
        return watch.wait(stopping, report)
    wait_for_handler(stopping)
    return False


def _introduce(app: App, settings: Settings, parts: _Parts, started: _Started) -> None:
    """Print the database, the components of the process and how to stop it."""
    # Imported here because it loads the store.
    from penstock.assembly.database import describe_database

    where = describe_database(settings.database_url)
    names, url, key = started.pipelines, started.url, started.key
    if app.is_json:
        record = {"action": "up", "command": parts.command, "pid": os.getpid(), "database": where,
                  "pipelines": names, "services": parts.services, "worker": parts.worker,
                  "api": url, "pubsub": started.pubsub, "metrics": started.metrics,
                  "development_key": key}  # fmt: skip
        click.echo(json.dumps(record))
    what = "" if parts.command == "up" else f" {parts.command}"
    app.hint(f"Penstock{what} is up (process {os.getpid()}).")
    app.hint(f"  state      {where}")
    if parts.services:
        app.hint(f"  services   {', '.join(started.services)}")
    if parts.worker:
        lease = format_duration(settings.session_lease)
        concurrency = f"concurrency {settings.worker_slots}"
        app.hint(f"  worker     {concurrency}, pool {settings.pool}, lease {lease}")
    if url is not None:
        app.hint(f"  api        {url}/api/v1   (OpenAPI: {url}/openapi.json)")
        app.hint(f"  dashboard  {url}/")
    if started.metrics is not None:
        app.hint(f"  metrics    {started.metrics}")
    if started.pubsub is not None:
        app.hint(f"  pubsub     PUBSUB_EMULATOR_HOST={started.pubsub}")
    if key is not None:
        app.hint(f"  key        {key}   (development, this machine only)")
    elif url is not None:
        app.hint("  login      with an API key: penstock keys create NAME --role admin")
    missing = "none: add --pipelines my_pipelines.py to execute runs"
    if names or parts.worker:
        app.hint(f"  pipelines  {', '.join(names) or missing}")
    app.hint("  status     penstock status   ·   stop  Ctrl-C")


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _signals(stopping: threading.Event) -> Iterator[list[int]]:
    """Set the event on the first signal; exit immediately on the second. Yield the signals."""
    received: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        if received:
            os._exit(INTERRUPTED_EXIT_CODE if number == signal.SIGINT else 128 + number)
        received.append(number)
        set_from_handler(stopping)

    if not _is_main_thread():
        yield received  # handlers can be set only in the main thread; tests use another one
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
