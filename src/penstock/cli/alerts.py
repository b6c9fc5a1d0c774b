"""`penstock alerts`: what needs somebody's attention."""

from __future__ import annotations

import json
from typing import Any

import click

from penstock.cli import shapes
from penstock.cli.app import App, Group
from penstock.core.clock import iso
from penstock.core.ids import encode


@click.group(cls=Group)
def alerts() -> None:
    """What needs somebody's attention."""


@alerts.command("list")
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--state", type=click.Choice(["open", "acknowledged", "resolved", "all"]),
              default="open", show_default=True)  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.pass_obj
def list_(app: App, customer: str | None, state: str, limit: int) -> None:
    """List alerts, newest first."""
    with app.client() as client:
        found = client.views.alerts(
            state=None if state == "all" else state, customer=customer, limit=limit
        )
        now = client.store.read(lambda tx: tx.now())
    record = {
        "alerts": [
            {
                "alert_id": encode("alert", a.alert_id), "severity": a.severity, "rule": a.rule,
                "state": a.state, "customer_id": a.customer_id, "message": a.message,
                "detail": _detail(a.detail), "times": a.times, "opened_at": iso(a.opened_at),
                "closed_at": shapes.iso_or_none(a.closed_at),
            }
            for a in found
        ]
    }  # fmt: skip

    def people() -> None:
        if not found:
            app.say("No open alerts." if state == "open" else "No alerts.")
            return
        for a in found:
            severity = click.style(f"{a.severity:<8}", fg=shapes.COLOURS.get(a.severity))
            closed = "" if a.state == "open" else f"  [{a.state}]"
            since = shapes.brief(a.opened_at, now)
            click.echo(f"{severity}  {since:<24}  {a.message}{closed}")
            if a.state == "open" and "fix" in _detail(a.detail):
                click.echo(f"{'':<36}→ {_detail(a.detail)['fix']}")
        if len(found) == limit:
            app.say(f"{len(found)} shown, there may be more: add --limit {limit * 2}")

    app.emit(record, people)


def _detail(text: str) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
