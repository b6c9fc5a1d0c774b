"""`penstock gate`: check a gate now, list its decisions, and test other settings on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.rows import collect
from penstock.core.errors import InvalidInput
from penstock.flows.gates.records import (
    BacktestRequest,
    GateCheck,
    GateDependency,
    ModeChanges,
    OverrideScope,
    ReevaluatedDecision,
    WhatIfRequest,
)

LIMIT = click.IntRange(1, 1_000)
OTHERWISE = click.Choice(["WAIT", "FAIL"], case_sensitive=False)


def gate_setting_options(command: Any) -> Any:
    """Add the options for the gate settings that `what-if` and `backtest` can try."""
    for option in reversed(
        (
            click.option("--proceed-at", type=click.FloatRange(0, 100), metavar="PERCENT",
                         help="Completeness in percent required to start."),
            click.option("--min-quality", type=click.FloatRange(0, 1), metavar="N",
                         help="Quality, from 0 to 1, required by --proceed-at."),
            click.option("--degraded-at", type=click.FloatRange(0, 100), metavar="PERCENT",
                         help="Completeness in percent for a degraded start."),
            click.option("--otherwise", type=OTHERWISE, help="Verdict below --degraded-at."),
            click.option("--recheck", metavar="DURATION", help="Interval between probes."),
            click.option("--max-wait", metavar="DURATION", help="Maximum time to wait."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.group(cls=Group)
def gate() -> None:
    """Check gates now, list decisions and try other settings."""


@gate.command("check")
@click.argument("pipeline")
@click.argument("partition")
@click.argument("phase")
@click.option("--processor", metavar="NAME", help="Check only the needs of this processor.")
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--mode", metavar="NAME", help="Mode of the flow; the open flow's mode if omitted.")
@click.pass_obj
def check(app: App, /, **given: Any) -> None:
    """Probe the data now and show what the gate would decide; changes nothing.

    If a flow is open, its completions and approvals are taken into account.
    """
    with app.connect() as client:
        explanation = client.diagnostics.explain(
            given["pipeline"], given["partition"], customer=given["customer"], mode=given["mode"]
        )
        flow = explanation.open_flow
        found = client.gates.check(**given, flow_id=None if flow is None else flow.flow_id)
        now = client.now()
    app.emit(found, lambda: print_check(found, now))


def print_check(found: GateCheck, now: int) -> None:
    """Print a check as text: verdict, reasons, dependencies."""
    name = f"{found.phase} {found.partition} ({found.mode})"
    click.echo(f"{output.escape_control(name)}  {click.style(found.verdict, bold=True)}")
    for reason in found.reasons:
        click.echo(f"  {output.escape_control(reason)}")
    if found.waits_until is not None:
        click.echo(f"  It would wait until {output.format_time(found.waits_until, now)}.")
    _print_dependencies(found.dependencies)
    if not found.is_evaluable:
        click.echo(
            "The flow does not evaluate this gate now: an earlier phase is not complete, "
            "or this phase has started."
        )


def _print_dependencies(found: list[GateDependency]) -> None:
    if not found:
        click.echo("  It probes no data: it depends on earlier phases only.")
        return
    output.print_table(
        ("TABLE", "KIND", "STATUS", "FOUND", "QUALITY", "PROBE", "ISSUES"),
        [
            (
                one.table, one.kind, one.status, _found(one), f"{one.quality:.2f}", _probe(one),
                "; ".join(one.issues),
            )
            for one in found
        ],
    )  # fmt: skip


def _found(one: GateDependency) -> str:
    if one.kind == "historical":
        return f"{one.days_present or 0}/{one.days_required} days"
    if one.found_rows is None:
        return "-"
    return f"{one.found_rows:,}/{one.required_rows:,} rows"


def _probe(one: GateDependency) -> str:
    """Return the duration of the probe and the bytes it read."""
    if one.probe_time is None:
        return "-"
    took = f"{one.probe_time.total_seconds() * 1_000:,.0f} ms"
    return took if one.scanned_bytes is None else f"{took}, {one.scanned_bytes:,} bytes"


@gate.command("recheck")
@click.argument("pipeline")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@click.option("--customer", metavar="ID", help="Only flows of this customer.")
@dry_run_option
@click.pass_obj
def recheck(app: App, /, **given: Any) -> None:
    """Evaluate waiting and blocked gates again now, for example after their data was repaired.

    Without a partition, those of all open flows of the pipeline.
    """
    with app.connect() as client:
        found = client.gates.recheck(**given)

    def print_text() -> None:
        if not found.flow_ids:
            app.hint("No gate waits or is blocked.")
            return
        click.echo(f"{output.plural(len(found.flow_ids), 'flow')} will be evaluated again:")
        for flow_id in found.flow_ids[:20]:
            click.echo(f"  penstock why {flow_id}")

    app.emit(found, print_text)


@gate.command("history")
@click.argument("pipeline")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@click.option("--customer", metavar="ID", help="Only decisions for this customer.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def history(app: App, /, **given: Any) -> None:
    """List gate decisions, newest first; --json includes all the evidence.

    OVERALL is the weighted mean of the completeness of the same-day tables that no override
    covers, and of the share of completed processors in the phases before.
    """
    limit = given.pop("limit")
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.gates.decisions(**given, limit=n, cursor=cursor), limit
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "AT": lambda one: output.format_time_short(one.decided_at, now),
            "PHASE": lambda one: one.phase + (f"/{one.processor}" if one.processor else ""),
            "PARTITION": lambda one: one.partition,
            "MODE": lambda one: one.mode,
            "VERDICT": lambda one: one.verdict,
            "OVERALL": lambda one: f"{one.completeness:.0f} %",
            "QUALITY": lambda one: f"{one.quality:.2f}",
            "WHY": lambda one: output.first_line(" ".join(one.reasons), 90),
        },
        empty="No decisions match.",
    )
    if page.items:
        app.hint(
            "OVERALL: mean completeness of the same-day tables that no override covers, and of the "
            "processors before."
        )


@gate.command("what-if")
@click.argument("pipeline")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@gate_setting_options
@click.option(
    "--override", metavar="TABLE", help="Evaluate as if this table were overridden; all for any."
)
@click.option("--customer", metavar="ID", help="Only decisions for this customer.")
@click.option(
    "--limit",
    type=LIMIT,
    default=20,
    show_default=True,
    help="Number of newest decisions to evaluate.",
)
@click.pass_obj
def what_if(app: App, /, **given: Any) -> None:
    """Recompute recorded decisions with other settings or an override; changes nothing."""
    table = given["override"]
    request = WhatIfRequest(
        pipeline=given["pipeline"],
        partition=given["partition"],
        phase=given["phase"],
        customer=given["customer"],
        limit=given["limit"],
        changes=_changes(given, is_required=table is None),
        override=OverrideScope(dependency=None if table == "all" else table) if table else None,
    )
    with app.connect() as client:
        tried = client.gates.what_if(request)
        now = client.now()
    app.emit(tried, lambda: _print_tried(app, tried.items, now))


@gate.command("backtest")
@click.argument("pipeline")
@gate_setting_options
@click.option("--days", type=click.IntRange(1, 3_660), default=30, show_default=True,
              help="Number of days before --until.")  # fmt: skip
@click.option("--since", metavar="TIME", help="Only decisions at or after this time.")
@click.option("--until", metavar="TIME", help="Only decisions before this time. Default: now.")
@click.option("--mode", metavar="NAME", help="Only decisions in this mode.")
@click.option("--phase", metavar="NAME", help="Only decisions of this phase.")
@click.option("--customer", metavar="ID", help="Only decisions for this customer.")
@click.pass_obj
def backtest(app: App, /, **given: Any) -> None:
    """Recompute the decisions of past days with other settings and summarize the differences."""
    request = BacktestRequest(
        pipeline=given["pipeline"],
        phase=given["phase"],
        customer=given["customer"],
        days=given["days"],
        since=_time(given["since"], "since"),
        until=_time(given["until"], "until"),
        mode=given["mode"],
        changes=_changes(given),
    )
    with app.connect() as client:
        found = client.gates.backtest(request)
        now = client.now()

    def print_text() -> None:
        modes = ", ".join(f"{name} {count:,}" for name, count in found.modes.items())
        click.echo(
            f"{output.plural(found.decisions, 'decision')} from {found.since:%Y-%m-%d %H:%M} to "
            f"{found.until:%Y-%m-%d %H:%M} UTC{f' ({modes})' if modes else ''}: "
            f"{found.changed:,} would have been different."
        )
        if found.left_out:
            click.echo(
                f"{output.plural(found.left_out, 'older decision')} left out: choose a shorter "
                "range with --since and --until, or one --phase or --mode."
            )
        if len(found.modes) > 1:
            click.echo("The settings were applied to every mode; --mode chooses one.")
        if found.diverged:
            click.echo(
                f"{output.plural(found.diverged, 'decision')} would be different today even "
                "without the changed settings."
            )
        for move in found.moves:
            if move.then != move.now:
                click.echo(f"  {move.decisions:,} × {move.then} → {move.now}")
        if found.items:
            _print_tried(app, found.items, now)

    app.emit(found, print_text)


def _print_tried(app: App, tried: list[ReevaluatedDecision], now: int) -> None:
    if not tried:
        app.hint("No decisions match.")
        return
    output.print_table(
        ("AT", "PHASE", "PARTITION", "MODE", "WAS", "WOULD BE", "WHY"),
        [
            (
                output.format_time_short(one.decided_at, now),
                one.phase + (f"/{one.processor}" if one.processor else ""),
                one.partition, one.mode, one.then,
                one.now if one.is_changed else "same",
                output.first_line(" ".join(one.reasons), 90),
            )
            for one in tried
        ],
    )  # fmt: skip


def _time(text: str | None, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(field, "a time such as 2025-12-31 or 2025-12-31T06:00Z", text) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _changes(given: dict[str, Any], *, is_required: bool = True) -> ModeChanges:
    names = ("proceed_at", "min_quality", "degraded_at", "otherwise", "recheck", "max_wait")
    changes = {name: given[name] for name in names if given[name] is not None}
    if not changes and is_required:
        raise InvalidInput("changes", "at least one setting, such as --proceed-at 95", "none")
    return ModeChanges(**changes)
