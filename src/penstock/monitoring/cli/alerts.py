"""`penstock alerts`: list alerts, each with its suggested fix."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Group


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
    with app.use_cases() as cases:
        found = cases.alerts(state=state, customer=customer, limit=limit)
        now = cases.now()

    def print_text() -> None:
        if not found:
            app.hint("No open alerts." if state == "open" else "No alerts.")
            return
        for a in found:
            severity = click.style(f"{a['severity']:<8}", fg=output.COLOURS.get(a["severity"]))
            closed = "" if a["state"] == "open" else f"  [{a['state']}]"
            since = output.format_time_short(output.parse_time(a["opened_at"]), now)
            click.echo(f"{severity}  {since:<24}  {output.escape_control(a['message'])}{closed}")
            fix = a["detail"].get("fix") if isinstance(a["detail"], dict) else None
            if a["state"] == "open" and fix:
                click.echo(f"{'':<36}→ {output.escape_control(str(fix))}")
        if len(found) == limit:
            app.hint(f"{len(found)} shown, there may be more: add --limit {limit * 2}")

    app.emit({"alerts": found}, print_text)
