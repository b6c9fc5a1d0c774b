"""`penstock pause`, `resume` and `pauses`: stop starting runs, at any level, and start again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli import shapes
from penstock.cli.app import App, Command
from penstock.core.clock import iso
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode

if TYPE_CHECKING:
    from penstock.assembly import Pause

SCOPE = click.Choice(["all", "customer", "pipeline", "config"])


@click.command("pause", cls=Command)
@click.argument("scope", type=SCOPE, metavar="all|customer|pipeline|config")
@click.argument("subject", required=False, metavar="[NAME OR ID]")
@click.option("--reason", default="", metavar="TEXT", help="Why; shown by `penstock pauses`.")
@click.pass_obj
def pause(app: App, scope: str, subject: str | None, reason: str) -> None:
    """Stop starting runs: of everything, a customer, a pipeline, a config.

    Runs that are running go on; slots that pass meanwhile are written to the ledger.
    """
    _check(scope, subject)
    with app.client() as client:
        is_new = client.pauses.pause(scope, subject, reason=reason)
    _tell(app, scope, subject, "paused" if is_new else "already paused")


@click.command("resume", cls=Command)
@click.argument("scope", type=SCOPE, metavar="all|customer|pipeline|config")
@click.argument("subject", required=False, metavar="[NAME OR ID]")
@click.option("--reason", default="", metavar="TEXT", help="Why; written down.")
@click.pass_obj
def resume(app: App, scope: str, subject: str | None, reason: str) -> None:
    """Lift a pause."""
    _check(scope, subject)
    with app.client() as client:
        was_paused = client.pauses.resume(scope, subject, reason=reason)
    _tell(app, scope, subject, "resumed" if was_paused else "was not paused")


@click.command("pauses", cls=Command)
@click.pass_obj
def pauses(app: App) -> None:
    """List the pauses in force."""
    with app.client() as client:
        found = client.pauses.in_force()
        now = client.store.read(lambda tx: tx.now())
    record = {
        "pauses": [
            {"scope": p.scope, "subject": _subject(p), "reason": p.reason,
             "paused_at": iso(p.paused_at), "paused_by": p.paused_by}
            for p in found
        ]
    }  # fmt: skip

    def people() -> None:
        if not found:
            app.say("Nothing is paused.")
            return
        shapes.table(
            ("SCOPE", "WHAT", "SINCE", "BY", "REASON"),
            [
                (p.scope, _subject(p), shapes.brief(p.paused_at, now), p.paused_by, p.reason)
                for p in found
            ],
        )
        app.say("Lift one: penstock resume SCOPE WHAT")

    app.emit(record, people)


def _subject(found: Pause) -> str | None:
    if found.scope == "config":
        return encode("cfg", found.subject)
    return found.customer_id or found.pipeline


def _check(scope: str, subject: str | None) -> None:
    if scope == "all" and subject:
        raise InvalidInput("subject", "nothing after `all`", subject)


def _tell(app: App, scope: str, subject: str | None, outcome: str) -> None:
    name = "everything" if scope == "all" else f"{scope} {subject}"
    record = {"scope": scope, "subject": subject, "outcome": outcome}
    verb = "" if outcome.startswith("was") else "is "
    app.emit(record, lambda: click.echo(f"{name} {verb}{outcome}."))
