"""`penstock status`: what is going on, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli import shapes
from penstock.cli.app import App, Command
from penstock.cli.signs import NOBODY_HAS_THEM, overdue_us, passed_over_us
from penstock.core.clock import iso

if TYPE_CHECKING:
    from penstock.assembly import Overview, Session


@click.command("status", cls=Command)
@click.pass_obj
def status(app: App) -> None:
    """Show what is going on: the queue, today, live processes, alerts."""
    # Loads the store.
    from penstock.assembly import describe_database, due_since

    settings = app.settings()
    with app.client(settings) as client:
        overview = client.views.overview()
        sessions = client.views.sessions()
        alerts = client.views.alerts(state="open", limit=1000)
        dead = client.runs.dead_letters(limit=1000)
        pauses = client.pauses.in_force()
        next_at, now = due_since(client.store)
    where = describe_database(settings.database_url)
    record: dict[str, Any] = {
        "database": where,
        "now": iso(now),
        "queue": {
            name: getattr(overview, name)
            for name in ("pending", "ready", "later", "paused", "blocked", "claimed", "running")
        },
        "oldest_ready_at": shapes.iso_or_none(overview.oldest_ready_at),
        "today": {
            "completed": overview.completed_today,
            "failed": overview.failed_today,
            "cancelled": overview.cancelled_today,
            "sla_breaches": overview.sla_breaches_today,
        },
        "next_slot_at": shapes.iso_or_none(next_at),
        "open_alerts": len(alerts),
        "open_dead_letters": len(dead),
        "pauses": len(pauses),
        "warnings": (warnings := _warnings(overview, sessions, next_at, now)),
        "sessions": [_session(session) for session in sessions],
    }

    def people() -> None:
        click.echo(f"{click.style('Penstock', bold=True)} · {where} · {shapes.when(now)}")
        _print_queue(overview, next_at, now)
        _print_sessions(sessions, overview, now)
        for warning in warnings:
            click.echo(click.style(warning, fg="yellow"))
        for n, what, how in (
            (len(alerts), "open alert", "penstock alerts list"),
            (len(dead), "open dead letter", "penstock runs dead"),
            (len(pauses), "pause in force", "penstock pauses"),
        ):
            if n:
                more = "+" if n == 1000 else ""
                words = what if n == 1 else what.replace("pause ", "pauses ") + "s" * (
                    not what.startswith("pause"))  # fmt: skip
                click.echo(f"{click.style(f'{n}{more} {words}', fg='yellow')}: {how}")

    app.emit(record, people)


def _warnings(
    overview: Overview, sessions: list[Session], next_at: int | None, now: int
) -> list[str]:
    """What does not move although it should."""
    found = []
    late, waits = overdue_us(next_at, now), passed_over_us(overview, sessions, now)
    if late:
        found.append(f"Next slot overdue by {shapes.span(late)}: start a scheduler "
                     "(penstock scheduler, or penstock up)")  # fmt: skip
    if waits:
        found.append(f"Runs ready for up to {shapes.span(waits)}: {NOBODY_HAS_THEM}")
    return found


def _print_queue(overview: Overview, next_at: int | None, now: int) -> None:
    oldest = overview.oldest_ready_at
    age = f", oldest {shapes.span(max(0, now - oldest))}" if oldest and overview.ready else ""
    waiting = [
        f"{getattr(overview, name):,} {name}"
        for name in ("later", "paused", "blocked")
        if getattr(overview, name)
    ]
    finished = overview.completed_today + overview.failed_today
    share = (
        f" ({overview.failed_today / finished:.1%} of attempts)" if overview.failed_today else ""
    )
    shapes.facts(
        [
            ("ready", f"{overview.ready:,}{age}"),
            ("waiting", ", ".join(waiting) or "0"),
            ("running", f"{overview.running + overview.claimed:,}"),
            ("today", f"{overview.completed_today:,} completed, {overview.failed_today:,} failed"
             f"{share}, {overview.cancelled_today:,} cancelled, "
             f"{overview.sla_breaches_today:,} started late"),
            ("next slot", shapes.when(next_at, now)),
        ]
    )  # fmt: skip


def _print_sessions(sessions: list[Session], overview: Overview, now: int) -> None:
    if not sessions:
        need = f" although {overview.ready:,} runs are ready" if overview.ready else ""
        click.echo(f"No worker is alive{need}: penstock up --pipelines my_pipelines.py")
        return
    shapes.table(
        ("PROCESS", "KIND", "POOL", "HOLDS", "SLOTS", "HOST", "LAST BEAT", "STATE"),
        [
            (
                s.name, s.kind, s.pool, s.held, s.slots, f"{s.host}:{s.pid}",
                shapes.relative(s.beat_at - now),
                "draining" if s.is_draining else "alive" if s.until_at >= now else "lapsed",
            )
            for s in sessions
        ],
    )  # fmt: skip


def _session(session: Session) -> dict[str, Any]:
    times = ("started_at", "beat_at", "until_at")
    return {
        name: iso(value) if name in times else value for name, value in session._asdict().items()
    }
