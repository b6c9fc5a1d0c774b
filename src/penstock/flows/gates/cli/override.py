"""`penstock override`: approve going on without a dependency, for a while, on record."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import OVERRIDE
from penstock.cli.backends.protocol import Shape
from penstock.cli.backends.protocol_flows import Narrowed, Place


@click.group(cls=Group)
def override() -> None:
    """Approvals to go on without a dependency: grant, list, revoke."""


@override.command("grant")
@click.argument("pipeline")
@click.argument("partition")
@click.option("--phase", metavar="NAME", help="Only for this phase.")
@click.option("--processor", metavar="NAME", help="Only for this processor.")
@click.option("--dependency", metavar="TABLE", help="Only without this table; any unless said.")
@click.option("--customer", metavar="ID", help="Whose; the default customer unless said.")
@click.option("--expires", metavar="DURATION", required=True, help="For how long; 7d at most.")
@click.option("--reason", metavar="TEXT", required=True, help="Why it is right; written down.")
@click.option("--notes", default="", metavar="TEXT", help="More.")
@click.option("--dry-run", is_flag=True, help="Only say what would be approved.")
@click.pass_obj
def grant(app: App, /, **given: Any) -> None:
    """Approve going on without a dependency; waiting gates are asked again at once.

    Never satisfies what is declared fail_if_missing; what starts under it is degraded.
    """
    wanted = {
        "pipeline_template": given["pipeline"],
        "partition": given["partition"],
        "phase": given["phase"],
        "processor": given["processor"],
        "dependency": given["dependency"],
        "customer_id": given["customer"],
        "expires": given["expires"],
        "reason": given["reason"],
        "notes": given["notes"],
    }
    with app.use_cases() as cases:
        if given["dry_run"]:
            place = Place(pipeline=given["pipeline"], partition=given["partition"],
                          customer=given["customer"])  # fmt: skip
            told = cases.flows.explain(place)
            app.emit({"would_grant": wanted}, lambda: _print_would(wanted, told))
            return
        made = cases.flows.grant(wanted)
        now = cases.now()

    def people() -> None:
        until = output.when(output.micros(made["expires_at"]), now)
        click.echo(f"{made['override_id']}: {_about(made)}, until {until}.")
        click.echo(f"Open flows of {output.printable(made['partition'])} are judged again now.")

    app.emit(made, people)


def _print_would(wanted: Shape, told: Shape) -> None:
    click.echo(f"Would approve that {_about(wanted)}, for {wanted['expires']}.")
    held = [story for story in told["phases"] if story["state"] in ("WAITING", "BLOCKED")]
    for story in held:
        click.echo(output.printable(f"  {story['phase']} {story['word']} {story['headline']}"))
    waiting = [one for one in told["still_open"] if one["state"] in ("WAITING", "BLOCKED")]
    for one in waiting:
        which = f"{one['phase']} {one['state'].lower()} in generation {one['generation']}"
        click.echo(output.printable(f"  {which} ({one['mode']}, {one['flow_id']})"))
    if not held and not waiting:
        click.echo("  No gate of this partition waits or is blocked now.")


@override.command("list")
@click.option("--pipeline", metavar="NAME", help="Only of this pipeline.")
@click.option("--partition", metavar="TEXT", help="Only of this slice of data.")
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--all", "everything", is_flag=True, help="Also those that count no longer.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="At most so many.")  # fmt: skip
@click.pass_obj
def list_(app: App, /, *, everything: bool, **given: Any) -> None:
    """List approvals, newest first; those that count now, unless --all."""
    with app.use_cases() as cases:
        found = cases.flows.overrides(Narrowed(**given, live=not everything))
        now = cases.now()

    def people() -> None:
        if not found:
            app.say("No approvals." if everything else "No approvals count now.")
            return
        output.table(
            ("OVERRIDE", "CUSTOMER", "PIPELINE", "PARTITION", "PHASE", "WITHOUT", "BY", "UNTIL",
             "REASON"),
            [
                (
                    one["override_id"], one["customer_id"], one["pipeline_template"],
                    one["partition"], one["phase"], one["dependency"] or "anything",
                    one["approved_by"],
                    "revoked" if one["revoked_at"]
                    else output.brief(output.micros(one["expires_at"]), now),
                    output.first_line(one["reason"]),
                )
                for one in found
            ],
        )  # fmt: skip

    app.emit({"overrides": found}, people)


@override.command("revoke")
@click.argument("override_id", type=OVERRIDE)
@click.option("--reason", default="", metavar="TEXT", help="Why; written down.")
@click.pass_obj
def revoke(app: App, override_id: str, reason: str) -> None:
    """Take an approval back; what started under it goes on."""
    with app.use_cases() as cases:
        cases.flows.revoke(override_id, reason)
    outcome = {"override_id": override_id, "outcome": "revoked"}
    app.emit(outcome, lambda: click.echo(f"{override_id} revoked."))


def _about(one: Shape) -> str:
    what = one.get("dependency") or "anything that is missing"
    where = f"{one['pipeline_template']} {one['partition']}"
    phase = f" {one['phase']}" if one.get("phase") else ""
    return output.printable(f"{where}{phase} may start without {what}")
