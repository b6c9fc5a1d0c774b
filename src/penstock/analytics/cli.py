"""`penstock analytics`: statistics on ended work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args

import click

from penstock.analytics.client import Bucket
from penstock.analytics.records import Acknowledgments, DependencyHealth, RunSeries, Trends
from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import parse_when
from penstock.core.clock import to_datetime
from penstock.core.records.record import Page


@click.group(cls=Group)
def analytics() -> None:
    """Show statistics on ended work: dependencies, trends, acknowledgments, durations."""


def _scope(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--customer", metavar="ID", help="Only rows of this customer.")(command)
    return click.option("--pipeline", metavar="NAME", help="Only this pipeline.")(command)


def _days(default: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--days", type=click.IntRange(1, 90), default=default, show_default=True,
                        help="Number of days up to today, UTC.")  # fmt: skip


@analytics.command()
@_scope
@_days(7)
@click.pass_obj
def dependencies(app: App, /, **given: Any) -> None:
    """Show how often dependencies were missing: by kind, gate, day and table."""
    with app.connect() as client:
        found = client.analytics.dependency_health(**given)
        now = client.now()
    app.emit(found, lambda: _print_dependencies(found, now))


def _print_dependencies(found: DependencyHealth, now: int) -> None:
    if not found.kinds:
        click.echo("No dependency was checked in this period.")
        return
    output.print_table(
        ("KIND", "CHECKS", "MISSING", "RATE"),
        [(one.kind, one.checks, one.failures, _percent(one.failure_rate)) for one in found.kinds],
    )
    if found.problems:
        click.echo("\nMost problematic dependencies")
        output.print_table(
            ("TABLE", "KIND", "MISSING", "BLOCKED", "LAST", "GATES"),
            [
                (
                    one.table,
                    one.kind,
                    one.failures,
                    _duration(one.blocked),
                    output.format_time_short(one.last_failure_at, now),
                    ", ".join(one.processors),
                )
                for one in found.problems[:20]
            ],
        )
    misses = [one for one in found.optional if one.misses]
    if misses:
        click.echo("\nOptional dependencies that were missing")
        output.print_table(
            ("TABLE", "GATE", "CHECKS", "MISSED", "RATE"),
            [
                (
                    one.table,
                    one.processor or one.phase,
                    one.checks,
                    one.misses,
                    _percent(one.miss_rate),
                )
                for one in misses[:20]
            ],
        )
    if found.overrides:
        uses = sum(one.executions for one in found.overrides)
        click.echo(f"\n{uses} executions under overrides: penstock analytics overrides")


@analytics.command()
@_scope
@_days(7)
@click.pass_obj
def trends(app: App, /, **given: Any) -> None:
    """Show completion, quality, failures, slow executions and completeness of tables."""
    with app.connect() as client:
        found = client.analytics.trends(**given)
        now = client.now()
    app.emit(found, lambda: _print_trends(found, now))


def _print_trends(found: Trends, now: int) -> None:
    if found.phases:
        output.print_table(
            ("PHASE", "PIPELINE", "ENDED", "COMPLETE", "COMPLETION", "QUALITY", "AVERAGE"),
            [
                (
                    one.phase,
                    one.pipeline,
                    one.ended,
                    one.completed,
                    _percent(one.completion_rate),
                    None if one.quality is None else f"{one.quality:.2f}",
                    _duration(one.average_duration),
                )
                for one in found.phases
            ],
        )
    if found.reasons:
        click.echo("\nWhy things failed, compared with the period before")
        output.print_table(
            ("REASON", "SOURCE", "COUNT", "BEFORE"),
            [(one.reason, one.source, one.count, one.count_before) for one in found.reasons[:20]],
        )
    if found.processors:
        click.echo("\nProcessors that fail most")
        output.print_table(
            ("PROCESSOR", "PIPELINE", "RUNS", "FAILED", "RATE", "BEFORE"),
            [
                (
                    f"{one.phase}.{one.processor}",
                    one.pipeline,
                    one.runs,
                    one.failures,
                    _percent(one.failure_rate),
                    _percent(one.failure_rate_before),
                )
                for one in found.processors[:20]
            ],
        )
    if found.slow:
        click.echo("\nSlow executions, over 5 minutes")
        output.print_table(
            ("RUN", "PROCESSOR", "CUSTOMER", "TOOK", "P95", "ENDED"),
            [
                (
                    one.run_id,
                    f"{one.phase}.{one.processor}",
                    one.customer,
                    _duration(one.duration),
                    _duration(one.p95),
                    output.format_time_short(one.ended_at, now),
                )
                for one in found.slow[:20]
            ],
        )
    low = [one for one in found.tables if one.band != "complete"]
    if low:
        click.echo("\nTables that were not complete")
        output.print_table(
            ("DAY", "TABLE", "PIPELINE", "COMPLETE"),
            [
                (f"{one.day:%Y-%m-%d}", one.table, one.pipeline, f"{one.completeness:.0f} %")
                for one in low[-20:]
            ],
        )
    if not (found.phases or found.reasons or found.slow):
        click.echo("Nothing ended in this period.")


@analytics.command()
@click.option("--bucket", type=click.Choice(get_args(Bucket)), default="1h", show_default=True,
              help="Length of a period.")  # fmt: skip
@click.option("--since", metavar="WHEN", help="Start of the series: an ISO time or age (2h, 3d).")
@_scope
@click.pass_obj
def runs(app: App, /, *, since: str | None, **given: Any) -> None:
    """Show ended runs by period."""
    with app.connect() as client:
        at = None if since is None else parse_when(since, "since", client.now())
        begin = None if at is None else to_datetime(at)
        found = client.analytics.run_series(**given, since=begin)
    app.emit(found, lambda: _print_series(found))


def _print_series(found: RunSeries) -> None:
    rows = [one for one in found.points if one.completed or one.failed or one.cancelled]
    if not rows:
        click.echo("No run ended in this period.")
        return
    output.print_table(
        ("FROM", "COMPLETED", "FAILED", "CANCELLED", "STARTED LATE"),
        [
            (output.format_time(one.at), one.completed, one.failed, one.cancelled, one.started_late)
            for one in rows
        ],
    )


@analytics.command()
@_scope
@click.option("--hours", type=click.IntRange(1, 168), default=24, show_default=True,
              help="Number of hours up to now.")  # fmt: skip
@click.pass_obj
def acks(app: App, /, **given: Any) -> None:
    """Show acks and nacks by processor and subscription, summed over the hours.

    With --json, by hour.
    """
    with app.connect() as client:
        found = client.analytics.acknowledgments(**given)
    app.emit(found, lambda: _print_acks(found))


def _print_acks(found: Acknowledgments) -> None:
    sums: dict[tuple[str, str, str], list[int]] = {}
    for one in found.hours:
        total = sums.setdefault((one.kind, one.pipeline or "", one.name), [0, 0])
        total[0] += one.acks
        total[1] += one.nacks
    if not sums:
        click.echo("No attempt and no delivery ended in this period.")
        return
    output.print_table(
        ("NAME", "KIND", "PIPELINE", "ACK", "NACK", "NACK RATE"),
        [
            (name, kind, pipeline, acked, nacked, _percent(nacked / max(1, acked + nacked)))
            for (kind, pipeline, name), (acked, nacked) in sums.items()
        ],
    )


@analytics.command()
@_scope
@_days(1)
@click.pass_obj
def validation(app: App, /, **given: Any) -> None:
    """List validation failures by processor and message."""
    with app.connect() as client:
        rows = client.analytics.validation_failures(**given)
        now = client.now()
    app.emit_page(
        Page(items=list(rows)),
        {
            "PROCESSOR": lambda one: f"{one.phase}.{one.processor}",
            "PIPELINE": lambda one: one.pipeline,
            "FAILURES": lambda one: one.failures,
            "LAST": lambda one: output.format_time_short(one.last_at, now),
            "RUN": lambda one: one.last_run_id,
            "MESSAGE": lambda one: output.first_line(one.message, 80),
        },
        empty="No validation failed in this period.",
    )


@analytics.command()
@_scope
@_days(7)
@click.pass_obj
def overrides(app: App, /, **given: Any) -> None:
    """List executions under overrides by processor."""
    with app.connect() as client:
        rows = client.analytics.overrides(**given)
        now = client.now()
    app.emit_page(
        Page(items=list(rows)),
        {
            "PROCESSOR": lambda one: f"{one.phase}.{one.processor}",
            "PIPELINE": lambda one: one.pipeline,
            "EXECUTIONS": lambda one: one.executions,
            "PARTITIONS": lambda one: one.partitions,
            "LAST": lambda one: output.format_time_short(one.last_at, now),
            "REASON": lambda one: output.first_line(one.reason or "", 60),
        },
        empty="No execution used an override in this period.",
    )


@analytics.command("end-to-end")
@_scope
@_days(30)
@click.pass_obj
def end_to_end(app: App, /, **given: Any) -> None:
    """List how long flows took from opening to end, by pipeline and mode."""
    with app.connect() as client:
        rows = client.analytics.end_to_end(**given)
    app.emit_page(
        Page(items=list(rows)),
        {
            "PIPELINE": lambda one: one.pipeline,
            "MODE": lambda one: one.mode,
            "FLOWS": lambda one: one.flows,
            "DEGRADED": lambda one: one.degraded,
            "FAILED": lambda one: one.failed,
            "MEDIAN": lambda one: _duration(one.p50),
            "P95": lambda one: _duration(one.p95),
            "LONGEST": lambda one: _duration(one.longest),
        },
        empty="No flow ended in this period.",
    )


def _percent(share: float | None) -> str | None:
    return None if share is None else output.format_share(share, 1)


def _duration(value: timedelta | None) -> str | None:
    return None if value is None else output.format_span(value)
