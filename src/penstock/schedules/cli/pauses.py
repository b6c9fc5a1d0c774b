"""`penstock pause`, `resume` and `pauses`: stop and resume starting runs, at any level."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from penstock.cli import output
from penstock.cli.app import App, Command, dry_run_option
from penstock.core.errors import InvalidInput
from penstock.core.records.record import Page

if TYPE_CHECKING:
    from penstock.schedules.records import PauseScope

SCOPE = click.Choice(["all", "customer", "pipeline", "config"])


@click.command("pause", cls=Command)
@click.argument("scope", type=SCOPE, metavar="all|customer|pipeline|config")
@click.argument("subject", required=False, metavar="[NAME OR ID]")
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown by `penstock pauses`.")
@dry_run_option
@click.pass_obj
def pause(app: App, scope: str, subject: str | None, reason: str) -> None:
    """Stop starting runs: all runs, or those of a customer, a pipeline or a config.

    Active runs continue. Occurrences during the pause are recorded in the ledger.
    """
    _check(scope, subject)
    with app.connect() as client:
        done = client.pauses.pause(cast("PauseScope", scope), subject, reason=reason)
    _report(app, scope, subject, "paused" if done.is_changed else "already paused")


@click.command("resume", cls=Command)
@click.argument("scope", type=SCOPE, metavar="all|customer|pipeline|config")
@click.argument("subject", required=False, metavar="[NAME OR ID]")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@dry_run_option
@click.pass_obj
def resume(app: App, scope: str, subject: str | None, reason: str) -> None:
    """End a pause so that runs start again."""
    _check(scope, subject)
    with app.connect() as client:
        done = client.pauses.resume(cast("PauseScope", scope), subject, reason=reason)
    _report(app, scope, subject, "resumed" if done.is_changed else "was not paused")


@click.command("pauses", cls=Command)
@click.pass_obj
def pauses(app: App) -> None:
    """List the pauses in force."""
    with app.connect() as client:
        found = Page(items=list(client.pauses.list()))
        now = client.now()
    app.emit_page(
        found,
        {
            "SCOPE": lambda one: one.scope,
            "NAME": lambda one: one.subject,
            "SINCE": lambda one: output.format_time_short(one.paused_at, now),
            "BY": lambda one: one.paused_by,
            "REASON": lambda one: one.reason,
        },
        empty="Nothing is paused.",
    )
    if found.items:
        app.hint("End a pause: penstock resume SCOPE NAME")


def _check(scope: str, subject: str | None) -> None:
    if scope == "all" and subject:
        raise InvalidInput("subject", "nothing after `all`", subject)


def _report(app: App, scope: str, subject: str | None, outcome: str) -> None:
    name = "everything" if scope == "all" else f"{scope} {subject}"
    record = {"scope": scope, "subject": subject, "outcome": outcome}
    verb = "" if outcome.startswith("was") else "is "
    app.emit(record, lambda: click.echo(f"{name} {verb}{outcome}."))
