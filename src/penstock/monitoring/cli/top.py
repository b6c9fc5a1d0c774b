"""`penstock top`: runs in progress, limits and backlogs, live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import click

from penstock.bus.records import SubscriptionDetail
from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.client import UseCaseGroups
from penstock.core.errors import Forbidden
from penstock.core.records.record import to_json_value
from penstock.limits.records import Limit
from penstock.monitoring.cli.live_view import watch
from penstock.monitoring.records import Overview
from penstock.runs.records import Run

SORTS = ("time", "customer", "pipeline", "processor")
RUNS_READ = 500
SUBSCRIPTIONS_READ = 10


@dataclass(frozen=True)
class Situation:
    """The data of one frame."""

    overview: Overview
    runs: list[Run]
    limits: list[Limit]
    """Limits with holders or waiters; empty for a key bound to a customer."""
    subscriptions: list[SubscriptionDetail] = field(default_factory=list)
    """Subscriptions with a backlog."""


@click.command("top", cls=Command)
@click.option("--sort", type=click.Choice(SORTS), default="time", show_default=True,
              help="Order of the runs; `time` shows the longest first.")  # fmt: skip
@click.option("--customer", metavar="ID", help="Only runs of this customer.")
@click.option("--rows", type=click.IntRange(1, 500), default=20, show_default=True,
              help="Maximum number of runs to show.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0.5, 60), default=2.0, show_default=True,
              metavar="SECONDS", help="Time between frames.")  # fmt: skip
@click.pass_obj
def top(app: App, sort: str, customer: str | None, rows: int, interval: float) -> None:
    """Show runs in progress, limits and backlogs, live.

    Keys: t, c, p and r sort by time, customer, pipeline and processor; q quits. Without a terminal,
    or with --json, it prints one frame and exits.
    """
    chosen = [sort]

    def on_key(key: str) -> bool:
        found = {"t": "time", "c": "customer", "p": "pipeline", "r": "processor"}.get(key.lower())
        if found is not None:
            chosen[0] = found
        return True

    with app.connect() as client:
        if app.format != "table":
            seen = _read(client, customer)
            ordered = sorted_runs(seen.runs, sort)[:rows]
            record = {
                **to_json_value(seen.overview),
                "runs": [to_json_value(run) for run in ordered],
                "limits": [to_json_value(one) for one in seen.limits],
                "subscriptions": [to_json_value(one) for one in seen.subscriptions],
            }
            app.emit(record, lambda: None)
            return
        watch(lambda: _frame(app.where, _read(client, customer), chosen[0], rows), on_key, interval)


def _read(client: UseCaseGroups, customer: str | None) -> Situation:
    overview = client.views.overview()
    runs = [
        run
        for state in ("RUNNING", "CLAIMED")
        for run in client.runs.list(state=state, customer=customer, limit=RUNS_READ).items
    ]
    try:
        limits = [one for one in client.limits.list(limit=200).items if one.held or one.waiting
                  or one.waiting_runs]  # fmt: skip
    except Forbidden:
        limits = []
    found = client.subscriptions.list(customer=customer, limit=SUBSCRIPTIONS_READ).items
    details = [client.subscriptions.get(one.name, customer=customer) for one in found]
    waiting = [one for one in details if one.backlog.ready + one.backlog.leased
               + one.backlog.delayed]  # fmt: skip
    return Situation(overview, runs, limits, waiting)


def sorted_runs(runs: Sequence[Run], sort: str) -> list[Run]:
    """Return runs in an order; within equal names, longest first."""
    ordered = sorted(runs, key=lambda run: (_since(run), run.run_id))
    if sort == "time":
        return ordered
    return sorted(ordered, key=lambda run: str(getattr(run, sort)))


def _since(run: Run) -> datetime:
    return run.started_at or run.claimed_at or run.scheduled_time


def _frame(where: str, seen: Situation, sort: str, rows: int) -> Any:
    """Return the frame: figures, runs, limits and backlogs."""
    # Imported here because importing rich takes 100 ms.
    from rich.console import Group
    from rich.text import Text  # as above

    overview = seen.overview
    head = Text.assemble(
        ("penstock top", "bold"), f" · {where} · {overview.as_of:%H:%M:%S} UTC\n",
        f"{overview.running_runs:,} running, {overview.claimed_runs:,} claimed, "
        f"{overview.ready_runs:,} ready, {overview.later_runs:,} later, "
        f"{overview.blocked_runs:,} blocked · today {overview.completed_today:,} completed, "
        f"{overview.failed_today:,} failed",
    )  # fmt: skip
    parts: list[Any] = [head, _runs_table(seen, sort, rows)]
    if seen.limits:
        parts.append(_limits_table(seen.limits))
    if seen.subscriptions:
        parts.append(_backlog_table(seen))
    parts.append(Text("t time  c customer  p pipeline  r processor  q quit", style="dim"))
    return Group(*parts)


def _runs_table(seen: Situation, sort: str, rows: int) -> Any:
    table = _table(
        "RUN", "CUSTOMER", "PIPELINE", "PROCESSOR", "PARTITION", "STATE", "FOR", "WORKER"
    )
    for run in sorted_runs(seen.runs, sort)[:rows]:
        age = max(timedelta(0), seen.overview.as_of - _since(run))
        _add(
            table, run.run_id, run.customer, run.pipeline, f"{run.phase}.{run.processor}",
            run.partition or "", str(run.state), output.format_span(age), run.claimed_by or "",
        )  # fmt: skip
    if len(seen.runs) > rows:
        table.caption = f"{rows} of {len(seen.runs)}{'+' if len(seen.runs) >= RUNS_READ else ''}"
    if not seen.runs:
        table.caption = "No run is in progress."
    return table


def _limits_table(limits: Sequence[Limit]) -> Any:
    table = _table("LIMIT", "HELD", "OF", "HOLDERS", "WAITING", "RUNS WAITING")
    for one in sorted(limits, key=lambda one: -(one.waiting + one.waiting_runs))[:10]:
        of = one.effective_capacity if one.capacity is not None else one.rate
        _add(table, one.name, str(one.held), "" if of is None else f"{of:g}", str(one.holders),
                      str(one.waiting), str(one.waiting_runs))  # fmt: skip
    return table


def _backlog_table(seen: Situation) -> Any:
    table = _table("SUBSCRIPTION", "READY", "LEASED", "DELAYED", "OLDEST")
    for one in sorted(seen.subscriptions, key=lambda one: -one.backlog.ready):
        oldest = one.backlog.oldest_at
        age = "" if oldest is None else output.format_span(seen.overview.as_of - oldest)
        _add(table, one.subscription.name, f"{one.backlog.ready:,}", f"{one.backlog.leased:,}",
                      f"{one.backlog.delayed:,}", age)  # fmt: skip
    return table


def _add(table: Any, *cells: str) -> None:
    """Add a row; names are escaped, so that markup and control characters have no effect."""
    # Imported here because importing rich takes 100 ms.
    from rich.text import Text

    table.add_row(*(Text(output.escape_control(cell)) for cell in cells))


def _table(*columns: str) -> Any:
    # Imported here because importing rich takes 100 ms.
    from rich.table import Table

    return Table(*columns, box=None, pad_edge=False, header_style="bold", title_justify="left",
                 caption_justify="left")  # fmt: skip
