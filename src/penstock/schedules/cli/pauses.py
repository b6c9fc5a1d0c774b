"""`penstock pause`, `resume` and `pauses`: stop and resume starting runs, at any level."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.core.errors import InvalidInput

SCOPE = click.Choice(["all", "customer", "pipeline", "config"])


@click.command("pause", cls=Command)
@click.argument("scope", type=SCOPE, metavar="all|customer|pipeline|config")
@click.argument("subject", required=False, metavar="[NAME OR ID]")
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown by `penstock pauses`.")
@click.pass_obj
def pause(app: App, scope: str, subject: str | None, reason: str) -> None:
    """Stop starting runs: all, of a customer, a pipeline or a config.

    Active runs continue. Occurrences that fall into the pause are recorded in the ledger.
    """
    _check(scope, subject)
    with app.use_cases() as cases:
        is_new = cases.pause(scope, subject, reason)
    _report(app, scope, subject, "paused" if is_new else "already paused")


@click.command("resume", cls=Command)
@click.argument("scope", type=SCOPE, metavar="all|customer|pipeline|config")
@click.argument("subject", required=False, metavar="[NAME OR ID]")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.pass_obj
def resume(app: App, scope: str, subject: str | None, reason: str) -> None:
    """End a pause so that runs start again."""
    _check(scope, subject)
    with app.use_cases() as cases:
        was_paused = cases.resume(scope, subject, reason)
    _report(app, scope, subject, "resumed" if was_paused else "was not paused")


@click.command("pauses", cls=Command)
@click.pass_obj
def pauses(app: App) -> None:
    """List the pauses in force."""
    with app.use_cases() as cases:
        found = cases.pauses()
        now = cases.now()

    def print_text() -> None:
        if not found:
            app.hint("Nothing is paused.")
            return
        output.print_table(
            ("SCOPE", "NAME", "SINCE", "BY", "REASON"),
            [
                (
                    p["scope"],
                    p["subject"],
                    output.format_time_short(output.parse_time(p["paused_at"]), now),
                    p["paused_by"],
                    p["reason"],
                )
                for p in found
            ],
        )
        app.hint("End a pause: penstock resume SCOPE NAME")

    app.emit({"pauses": found}, print_text)


def _check(scope: str, subject: str | None) -> None:
    if scope == "all" and subject:
        raise InvalidInput("subject", "nothing after `all`", subject)


def _report(app: App, scope: str, subject: str | None, outcome: str) -> None:
    name = "everything" if scope == "all" else f"{scope} {subject}"
    record = {"scope": scope, "subject": subject, "outcome": outcome}
    verb = "" if outcome.startswith("was") else "is "
    app.emit(record, lambda: click.echo(f"{name} {verb}{outcome}."))
