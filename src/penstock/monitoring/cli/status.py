"""`penstock status`: the queue, today's totals and live processes on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.backends.protocol import Shape, UseCases
from penstock.core.errors import Forbidden
from penstock.monitoring.stalls import NO_CAPABLE_WORKER, overdue_us, unclaimed_us

MANY = 1_000


@click.command("status", cls=Command)
@click.pass_obj
def status(app: App) -> None:
    """Show the queue, today's totals, live processes and open alerts."""
    with app.use_cases() as cases, app.connect() as client:
        overview = cases.overview()
        sessions = _sessions(cases)
        alerts = len(cases.alerts(state="open", customer=None, limit=MANY))
        dead = len(client.dead_letters.list(limit=MANY).items)
        pauses = len(cases.pauses())
    now = output.parse_time(overview["as_of"])
    assert now is not None
    warnings = _warnings(overview, sessions, now)
    record: dict[str, Any] = {
        "where": cases.where,
        **overview,
        "open_alerts": alerts,
        "open_dead_letters": dead,
        "pauses": pauses,
        "warnings": warnings,
        "sessions": sessions,
    }

    def print_text() -> None:
        click.echo(
            f"{click.style('Penstock', bold=True)} · {cases.where} · {output.format_time(now)}"
        )
        _print_queue(overview, now)
        _print_sessions(sessions, overview, now)
        for warning in warnings:
            click.echo(click.style(warning, fg="yellow"))
        for n, what, how in (
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


def _sessions(cases: UseCases) -> list[Shape] | None:
    """Return live processes; None for a key bound to a customer, which may not list them."""
    try:
        return cases.sessions()
    except Forbidden:
        return None


def _warnings(overview: Shape, sessions: Sequence[Shape] | None, now: int) -> list[str]:
    """Return a warning for each stall: an overdue occurrence, ready runs that are not claimed."""
    found = []
    late = overdue_us(output.parse_time(overview["next_slot_at"]), now)
    is_free = any(
        s["kind"] == "worker" and _is_alive(s, now) and not s["is_draining"]
        and s["held"] < s["slots"]
        for s in sessions or ()
    )  # fmt: skip
    waits = unclaimed_us(
        overview["ready_runs"],
        output.parse_time(overview["oldest_ready_at"]),
        now,
        has_free_worker=is_free,
    )
    if late:
        found.append(f"Next occurrence overdue by {output.format_span(late)}: start a scheduler "
                     "(penstock scheduler, or penstock up)")  # fmt: skip
    if waits:
        found.append(f"Runs ready for up to {output.format_span(waits)}: {NO_CAPABLE_WORKER}")
    return found


def _print_queue(overview: Shape, now: int) -> None:
    ready, oldest = overview["ready_runs"], output.parse_time(overview["oldest_ready_at"])
    age = f", oldest {output.format_span(max(0, now - oldest))}" if oldest and ready else ""
    waiting = [
        f"{overview[f'{name}_runs']:,} {name}"
        for name in ("later", "paused", "blocked")
        if overview[f"{name}_runs"]
    ]
    completed, failed = overview["completed_today"], overview["failed_today"]
    share = f" ({failed / (completed + failed):.1%} of attempts)" if failed else ""
    output.print_facts(
        [
            ("ready", f"{ready:,}{age}"),
            ("waiting", ", ".join(waiting) or "0"),
            ("running", f"{overview['running_runs'] + overview['claimed_runs']:,}"),
            ("today", f"{completed:,} completed, {failed:,} failed{share}, "
             f"{overview['cancelled_today']:,} cancelled, "
             f"{overview['sla_breaches_today']:,} started late"),
            ("next due", output.format_time(output.parse_time(overview["next_slot_at"]), now)),
        ]
    )  # fmt: skip


def _print_sessions(sessions: Sequence[Shape] | None, overview: Shape, now: int) -> None:
    if sessions is None:
        return
    if not sessions:
        ready = overview["ready_runs"]
        need = f" ({output.plural(ready, 'run')} ready)" if ready else ""
        click.echo(f"No worker is alive{need}: penstock up --pipelines my_pipelines.py")
        return
    output.print_table(
        ("PROCESS", "KIND", "POOL", "RUNS", "CONCURRENCY", "HOST", "HEARTBEAT", "STATE"),
        [
            (
                s["name"], s["kind"], s["pool"], s["held"], s["slots"], f"{s['host']}:{s['pid']}",
                output.format_relative((output.parse_time(s["last_beat_at"]) or now) - now),
                "draining" if s["is_draining"] else "alive" if _is_alive(s, now) else "lapsed",
            )
            for s in sessions
        ],
    )  # fmt: skip


def _is_alive(session: Shape, now: int) -> bool:
    return (output.parse_time(session["lease_until"]) or 0) >= now
