"""`penstock status`: the queue, today's totals and live processes on one screen."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.client import UseCaseGroups
from penstock.core.clock import Micros, from_datetime
from penstock.core.errors import Forbidden
from penstock.core.records.record import to_json_value
from penstock.monitoring.cli.live_view import is_interactive, watch
from penstock.monitoring.cli.system import show_system
from penstock.monitoring.records import Overview, Session
from penstock.monitoring.stalls import (
    OLDEST_READ,
    WITHOUT_SCHEDULER,
    describe_incapable,
    describe_missed_heartbeats,
    is_scheduler_missing,
    is_silent,
    overdue,
    silent_workers,
    unclaimed,
)
from penstock.monitoring.system.records import SystemStatus
from penstock.schedules.liveness import START, is_scheduler_alive

MANY = 1_000


@click.command("status", cls=Command)
@click.option("--watch", "is_watched", is_flag=True,
              help="Refresh continuously; q quits. Without a terminal, print once.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0.5, 60), default=2.0, show_default=True,
              metavar="SECONDS", help="Time between refreshes.")  # fmt: skip
@click.option("--system", "is_system", is_flag=True,
              help="Show the installation: store, services, pools, backlogs, checks.")  # fmt: skip
@click.pass_obj
def status(app: App, is_watched: bool, interval: float, is_system: bool) -> None:
    """Show the queue, today's totals, live processes and open alerts."""
    with app.connect() as client:
        if is_system:
            show_system(app, client.views.system())
        elif is_watched and app.format == "table" and is_interactive():
            watch(lambda: _captured(app, client), lambda _: True, interval)
        else:
            _show(app, client)


def _captured(app: App, client: UseCaseGroups) -> Any:
    """Return the output of the command as a frame of a live view."""
    # Imported here because importing rich takes 100 ms.
    from rich.text import Text

    made = io.StringIO()
    with contextlib.redirect_stdout(made):
        _show(app, client)
    return Text.from_ansi(made.getvalue() + "\nq quits")


def _show(app: App, client: UseCaseGroups) -> None:
    overview = client.views.overview()
    system = _system(client)
    sessions = None if system is None else system.processes
    alerts = len(client.alerts.list(state="open", limit=MANY).items)
    dead = len(client.dead_letters.list(limit=MANY).items)
    pauses = len(client.pauses.list())
    now = from_datetime(overview.as_of)
    warnings = _warnings(client, overview, system)
    record: dict[str, Any] = {
        "where": app.where,
        **to_json_value(overview),
        "open_alerts": alerts,
        "open_dead_letters": dead,
        "pauses": pauses,
        "warnings": warnings,
        "sessions": sessions,
    }

    def print_text() -> None:
        click.echo(
            f"{click.style('Penstock', bold=True)} · {app.where} · {output.format_time(now)}"
        )
        _print_queue(overview, now, system)
        _print_sessions(sessions, overview, now)
        for warning in warnings:
            click.echo(click.style(warning, fg="yellow"))
        for n, what, how in (
            (overview.blocked_flows, "blocked flow", "penstock flows list --state BLOCKED"),
            (alerts, "open alert", "penstock alerts list"),
            (dead, "open dead letter", "penstock dlq groups"),
            (pauses, "pause in force", "penstock pauses"),
        ):
            if n:
                more = "+" if n == MANY else ""
                words = what if n == 1 else what.replace("pause ", "pauses ") + "s" * (
                    not what.startswith("pause"))  # fmt: skip
                click.echo(f"{click.style(f'{n}{more} {words}', fg='yellow')}: {how}")

    app.emit(record, print_text)


def _system(client: UseCaseGroups) -> SystemStatus | None:
    """Return processes and services; None for a key bound to a customer, which may not see them."""
    try:
        return client.views.system()
    except Forbidden:
        return None


def _warnings(client: UseCaseGroups, overview: Overview, system: SystemStatus | None) -> list[str]:
    """Return a warning for each stall: no scheduler, an overdue occurrence, unclaimed runs, a
    silent worker.
    """
    sessions = () if system is None else system.processes
    found = [
        _sentence(describe_missed_heartbeats(one, overview.as_of))
        for one in silent_workers(sessions, overview.as_of)
    ]
    late = overdue(overview)
    waits = unclaimed(overview, sessions)
    ticked = () if system is None else [one.ticked_at for one in system.services]
    if system is not None and is_scheduler_missing(overview, ticked, system.as_of):
        found.append(f"{_sentence(WITHOUT_SCHEDULER)}. Start one: {START}")
    elif late:
        advice = (
            ": check that a scheduler is running"
            if system is None
            else " although a scheduler is running: read its log"
        )
        found.append(f"Next occurrence overdue by {output.format_span(late)}{advice}")
    if waits:
        oldest = client.runs.list(waits="ready", sort="waiting_for", limit=OLDEST_READ).items
        why = describe_incapable(one.pipeline for one in oldest)
        found.append(f"Runs ready for up to {output.format_span(waits)}: {why}")
    return found


def _print_queue(overview: Overview, now: Micros, system: SystemStatus | None) -> None:
    ready, oldest = overview.ready_runs, overview.oldest_ready_at
    age = ""
    if oldest is not None and ready:
        age = f", oldest {output.format_span(max(timedelta(0), overview.as_of - oldest))}"
    counts = {
        "later": overview.later_runs,
        "paused": overview.paused_runs,
        "blocked": overview.blocked_runs,
    }
    waiting = [f"{n:,} {name}" for name, n in counts.items() if n]
    completed, failed = overview.completed_today, overview.failed_today
    share = (
        f" ({output.format_share(failed / (completed + failed), 1)} of attempts)" if failed else ""
    )
    output.print_facts(
        [
            ("ready", f"{ready:,}{age}"),
            ("waiting", ", ".join(waiting) or "0"),
            ("running", f"{overview.running_runs + overview.claimed_runs:,}"),
            ("today", f"{completed:,} completed, {failed:,} failed{share}, "
             f"{_expired(overview)}{overview.cancelled_today:,} cancelled, "
             f"{overview.sla_breaches_today:,} started late"),
            ("flows", ", ".join(f"{n:,} {name}" for name, n in (
                ("blocked", overview.blocked_flows), ("waiting", overview.waiting_flows)) if n)
             or "none waits"),
            ("next due", output.format_time(overview.next_occurrence_at, now)),
            *([] if system is None else [("scheduler", _scheduler(system))]),
        ]
    )  # fmt: skip


def _scheduler(system: SystemStatus) -> str:
    """Say when the services of any scheduler process last made a step."""
    if not system.services:
        return "none has run"
    now = from_datetime(system.as_of)
    ticked = [from_datetime(one.ticked_at) for one in system.services]
    word = "running" if is_scheduler_alive(ticked, now) else "not running"
    return f"{word} (last tick {output.format_relative(max(ticked) - now)})"


def _expired(overview: Overview) -> str:
    """Return the number of runs that expired today; empty if none did."""
    return f"{overview.expired_today:,} expired, " if overview.expired_today else ""


def _print_sessions(sessions: Sequence[Session] | None, overview: Overview, now: Micros) -> None:
    if sessions is None:
        return
    if not sessions:
        ready = overview.ready_runs
        need = f" ({output.plural(ready, 'run')} ready)" if ready else ""
        click.echo(f"No worker is alive{need}: penstock up --pipelines my_pipelines.py")
        return
    output.print_table(
        ("PROCESS", "KIND", "POOL", "RUNS", "CONCURRENCY", "HOST", "HEARTBEAT", "STATE"),
        [
            (
                s.name, s.kind, s.pool, s.held, s.concurrency, f"{s.host}:{s.pid}",
                output.format_relative(from_datetime(s.heartbeat_at) - now),
                _state(s, overview.as_of),
            )
            for s in sessions
        ],
    )  # fmt: skip


def _state(session: Session, as_of: datetime) -> str:
    if session.lease_until < as_of:
        return "lapsed"
    if is_silent(session, as_of):
        return "silent"
    return "draining" if session.is_draining else "alive"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
