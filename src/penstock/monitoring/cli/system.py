"""`penstock status --system`: the state of the installation."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App
from penstock.core.clock import from_datetime
from penstock.monitoring.system.records import SystemStatus


def show_system(app: App, seen: SystemStatus) -> None:
    """Print the store, services, pools, backlogs and checks."""
    app.emit(seen, lambda: _print(seen))


def _print(seen: SystemStatus) -> None:
    now, store = from_datetime(seen.as_of), seen.store
    oldest = seen.outbox.oldest_at
    age = "" if oldest is None else f", oldest {output.format_span(seen.as_of - oldest)}"
    facts = [
        ("version", seen.version),
        ("store", f"{store.engine} {store.version}, {store.size_bytes / 1e6:,.1f} MB"),
        ("schema", store.schema),
        ("outbox", f"{seen.outbox.waiting:,} waiting{age}"),
        *(
            ("audit sink", f"{one.sink}: {one.backlog:,} rows behind {one.error or ''}".strip())
            for one in seen.audit
        ),
    ]
    output.print_facts(facts)
    if seen.services:
        output.print_table(
            ("SERVICE", "LAST TICK", "STATE"),
            [
                (
                    one.service,
                    output.format_relative(from_datetime(one.ticked_at) - now),
                    "late" if one.is_late else "on time",
                )
                for one in seen.services
            ],
        )
    if seen.pools:
        output.print_table(
            ("POOL", "READY", "RUNNING", "WORKERS", "DESIRED"),
            [
                (one.pool, one.ready_runs, one.running_runs, one.workers, one.desired_workers)
                for one in seen.pools
            ],
        )
    for check in seen.checks:
        verdict = click.style(f"{check.verdict:<4}", fg=output.COLOURS[check.verdict])
        click.echo(f"{verdict}  {check.check:<12}  {check.says}")
        if check.fix:
            click.echo(f"{'':<20}→ {check.fix}")
