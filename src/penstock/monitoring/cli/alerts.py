"""`penstock alerts`: list alerts, each with its suggested fix."""

from __future__ import annotations

from typing import cast

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.rows import collect
from penstock.monitoring.records import AlertState, StoredAlert

COMMANDS = {"flow": "penstock explain", "run": "penstock runs show", "config": "penstock why"}
"""What shows the subject of an alert that has no fix of its own."""


def subject_command(alert: StoredAlert) -> str | None:
    """Return the command that shows the subject of an alert."""
    command = COMMANDS.get(alert.subject_kind)
    return f"{command} {alert.subject}" if command and alert.subject else None


@click.group(cls=Group)
def alerts() -> None:
    """List alerts."""


@alerts.command("list")
@click.option("--customer", metavar="ID", help="Only alerts of this customer.")
@click.option("--state", type=click.Choice(["open", "acknowledged", "resolved", "all"]),
              default="open", show_default=True, help="Filter by state.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="Maximum number of alerts.")  # fmt: skip
@click.pass_obj
def list_(app: App, customer: str | None, state: str, limit: int) -> None:
    """List alerts with their suggested fixes, newest first."""
    chosen = cast("AlertState | None", None if state == "all" else state)
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.views.alerts(
                state=chosen, customer=customer, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()

    def print_text() -> None:
        if not page.items:
            app.hint("No open alerts." if state == "open" else "No alerts.")
            return
        for a in page.items:
            severity = click.style(f"{a.severity:<8}", fg=output.COLOURS.get(a.severity))
            closed = "" if a.state == "open" else f"  [{a.state}]"
            since = output.format_time_short(a.opened_at, now)
            text = a.message if a.customer is None else f"{a.customer}: {a.message}"
            click.echo(f"{severity}  {since:<24}  {output.escape_control(text)}{closed}")
            fix = a.detail.get("fix") or subject_command(a)
            if a.state == "open" and fix:
                click.echo(f"{'':<36}→ {output.escape_control(str(fix))}")
        app.hint_more(page)

    app.emit(page, print_text)
