"""`penstock limits`: show and set shared capacity and rate limits, and release their leases."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import confirm
from penstock.cli.rows import collect
from penstock.core.errors import InvalidInput
from penstock.limits.records import Limit, LimitDetail

SHOWN = ("all", "line", "learned")
CHANGES = 10
LIMIT = click.IntRange(1, 10_000)


@click.group(cls=Group)
def limits() -> None:
    """Show and set shared capacity and rate limits; release leases."""


@limits.command("list")
@click.option("--show", type=click.Choice(SHOWN), default="all", show_default=True,
              help="line: only with a queue; learned: only lowered by quota errors.")  # fmt: skip
@click.option("--search", "q", metavar="TEXT", help="Part of a name, or the id of a run.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, limit: int, **given: Any) -> None:
    """List limits by name, with used, configured and learned capacity and the queue length."""
    with app.connect() as client:
        page = collect(lambda n, cursor: client.limits.list(**given, limit=n, cursor=cursor), limit)
    is_filtered = given["show"] != "all" or given["q"]
    app.emit_page(
        page,
        {
            "LIMIT": lambda one: one.name,
            "HELD": lambda one: one.held,
            "CAPACITY": _capacity,
            "RATE": _rate,
            "LAST MINUTE": lambda one: one.used_last_minute,
            "WAITING": lambda one: one.waiting + one.waiting_runs,
            "QUOTA ERRORS": lambda one: one.quota_errors or None,
        },
        empty="No limits match."
        if is_filtered
        else "No limits yet: limits.slot(NAME) creates one on first use, or create it with "
        "penstock limits set NAME --capacity 10",
    )


@limits.command("show")
@click.argument("name")
@click.pass_obj
def show(app: App, name: str) -> None:
    """Show a limit with its holders, its queue and recent wait times."""
    with app.connect() as client:
        found = client.limits.get(name)
        now = client.now()
    app.emit(found, lambda: _show(found, now))


@limits.command("set")
@click.argument("name")
@click.option(
    "--capacity",
    type=click.IntRange(0),
    help="Maximum number of slots held at once; 0 grants none.",
)
@click.option(
    "--adaptive/--fixed", default=None, help="Lower the capacity temporarily after quota errors."
)
@click.option("--floor", type=click.IntRange(1), help="Lowest capacity that --adaptive may reach.")
@click.option("--rate", type=float, metavar="N", help="Tokens per second.")
@click.option(
    "--burst", type=click.IntRange(1), help="Token bucket size; defaults to one second's worth."
)
@click.option("--lease", metavar="DURATION", help="Lifetime of a slot without renewal.")
@click.option("--grace", metavar="DURATION", help="How long an expired slot still counts as held.")
@click.option("--queue-max", type=click.IntRange(0), help="Maximum length of the queue.")
@dry_run_option
@click.pass_obj
def set_(app: App, /, name: str, **given: Any) -> None:
    """Create or change a limit; the change takes effect immediately in all processes."""
    settings = {key: value for key, value in given.items() if value is not None}
    if not settings:
        raise InvalidInput("capacity", "at least one option", None, "For example --capacity 10.")
    with app.connect() as client:
        made = client.limits.declare(name, **settings)
        now = client.now()
    app.emit(made, lambda: _show(made, now))


@limits.command("release")
@click.argument("lease_id", metavar="LEASE")
@click.option("--reason", required=True, metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def release(app: App, lease_id: str, reason: str, yes: bool) -> None:
    """End a lease; its slot goes to the next in the queue, and its fencing token becomes stale."""
    if not (yes or app.is_json or app.is_dry_run):
        confirm(f"Release {lease_id}? Its holder loses the slot.")
    with app.connect() as client:
        lease = client.limits.release(lease_id, reason)
    app.emit(lease, lambda: click.echo(f"{lease_id} of {lease.holder} is released."))


def _capacity(limit: Limit) -> str:
    if limit.capacity is None:
        return "any"
    if limit.effective_capacity != limit.capacity:
        return f"{limit.effective_capacity} of {limit.capacity} (learned)"
    return str(limit.capacity)


def _rate(limit: Limit) -> str | None:
    return None if limit.rate is None else f"{limit.rate:g}/s"


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.3g} s"


def _show(found: LimitDetail, now: int) -> None:
    limit, waits = found.limit, found.waits
    click.echo(f"{limit.name} · {limit.held} held of {_capacity(limit)}")
    if limit.effective_capacity == 0:
        click.echo(f"It is closed; to open it: penstock limits set {limit.name} --capacity N")
    rate = _rate(limit)
    quota = limit.last_quota_error_at
    output.print_facts(
        [
            ("rate", f"{rate}, burst {limit.burst or 'one second'}" if rate else None),
            ("last minute", f"{limit.used_last_minute} granted" if rate else None),
            ("adaptive", f"down to {limit.floor}" if limit.is_adaptive else None),
            ("quota errors", None if quota is None else
             f"{limit.quota_errors}, the last {output.format_time_short(quota, now)}"),
            ("lease", output.format_span(limit.lease)),
            ("in queue", limit.waiting),
            ("runs waiting", limit.waiting_runs),
            ("waits", f"p50 {_seconds(waits.p50)}, p95 {_seconds(waits.p95)}, p99 "
             f"{_seconds(waits.p99)}; {output.format_share(waits.contention)} waited"
             if waits.measured else None),
        ]
    )  # fmt: skip
    if found.holders:
        output.print_table(
            ("LEASE", "HOLDER", "RUN", "WEIGHT", "SINCE", "RENEWED", "TOKEN"),
            [
                (
                    one.lease_id,
                    one.holder,
                    one.run_id,
                    one.weight,
                    output.format_time_short(one.since, now),
                    _when(one.renewed_at, now),
                    one.fencing_token,
                )
                for one in found.holders
            ],
        )
    if found.queue:
        output.print_table(
            ("POSITION", "WAITING", "RUN", "WEIGHT", "SINCE", "TURN ABOUT"),
            [
                (one.position, one.holder, one.run_id, one.weight,
                 output.format_time_short(one.asked_at, now), _when(one.likely_at, now))
                for one in found.queue
            ],
        )  # fmt: skip
    if found.capacity_series:
        output.print_table(
            ("CHANGED", "FROM", "TO", "CAUSE"),
            [
                (output.format_time_short(one.at, now), _bound(one.before), _bound(one.capacity),
                 one.cause)
                for one in found.capacity_series[-CHANGES:]
            ],
        )  # fmt: skip


def _when(at: datetime | None, now: int) -> str | None:
    return None if at is None else output.format_time_short(at, now)


def _bound(capacity: int | None) -> str:
    return "any" if capacity is None else str(capacity)
