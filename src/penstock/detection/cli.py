"""`penstock detect`, `penstock risk` and `penstock freshness`: list detections."""

from __future__ import annotations

from typing import Any, get_args

import click

from penstock.cli import output
from penstock.cli.app import App, Command, Group
from penstock.cli.arguments import FLOW
from penstock.cli.rows import collect
from penstock.core.records.record import Page
from penstock.detection.client import Rule
from penstock.detection.records import Detection, FlowRisk


@click.command("detect", cls=Command)
@click.option("--rule", type=click.Choice(get_args(Rule)), metavar="RULE",
              help=f"One of {', '.join(get_args(Rule))}.")  # fmt: skip
@click.option("--customer", metavar="ID", help="Only detections for this customer.")
@click.option("--pipeline", metavar="NAME", help="Only detections for this pipeline.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def detect(app: App, /, *, limit: int, **given: Any) -> None:
    """List what is late, stuck, missing or at risk now, with the command that fixes it."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.detections.list(**given, limit=n, cursor=cursor), limit
        )
        now = client.now()
        blocked = [] if page.items else client.flows.list(state="BLOCKED", limit=1).items
    app.emit(page, lambda: _print(page, now, has_blocked=bool(blocked)))


def _print(page: Page[Detection], now: int, *, has_blocked: bool) -> None:
    if not page.items:
        click.echo("Nothing is late, stuck, missing or at risk by its thresholds.")
    if has_blocked:  # a gate waits for data within the time that it was given
        click.echo("Flows are blocked by gates: penstock flows list --state BLOCKED")
    for one in page.items:
        since = output.format_time_short(one.since, now)
        click.echo(output.escape_control(f"{one.severity:<8}  {one.rule}  since {since}"))
        click.echo(output.escape_control(f"  {one.message}"))
        click.echo(output.escape_control(f"  {one.command}"))


@click.command("risk", cls=Command)
@click.argument("flow_id", type=FLOW)
@click.pass_obj
def risk(app: App, flow_id: str) -> None:
    """Show when a flow will probably end, and how likely it is to miss its service level."""
    with app.connect() as client:
        found = client.detections.risk(flow_id)
    app.emit(found, lambda: _print_risk(found))


def _print_risk(found: FlowRisk) -> None:
    click.echo(f"{found.flow_id}  {found.text}")
    output.print_facts(
        [
            ("probably ends", output.format_time(found.eta_p50_at)),
            ("at the latest", output.format_time(found.eta_p90_at)),
            ("should end", output.format_time(found.slo_at)),
        ]
    )
    output.print_table(
        ("PHASE", "NOW", "USUALLY", "AT MOST"),
        [
            (
                one.phase,
                "*" if one.is_current else "",
                None if one.expected_p50 is None else f"{one.expected_p50.total_seconds():.0f} s",
                None if one.expected_p90 is None else f"{one.expected_p90.total_seconds():.0f} s",
            )
            for one in found.phases
        ],
    )


@click.group(cls=Group)
def freshness() -> None:
    """Show the age of tables that have a freshness policy."""


@freshness.command("list")
@click.option("--pipeline", metavar="NAME", help="Only tables that this pipeline declares.")
@click.pass_obj
def list_(app: App, pipeline: str | None) -> None:
    """List tables with a freshness policy, and their newest check."""
    with app.connect() as client:
        rows = client.detections.freshness(pipeline=pipeline)
        now = client.now()
    app.emit_page(
        Page(items=list(rows), next_cursor=None),
        {
            "TABLE": lambda one: one.table,
            "STATUS": lambda one: one.status,
            "NEWEST": lambda one: output.format_time_short(one.newest_at, now),
            "PIPELINE": lambda one: one.pipeline,
            "CHECKED": lambda one: output.format_time_short(one.checked_at, now),
            "ERROR": lambda one: output.first_line(one.error or ""),
        },
        empty="No pipeline declares freshness=...",
    )
