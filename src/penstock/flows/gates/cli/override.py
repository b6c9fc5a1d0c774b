"""`penstock override`: time-limited, recorded approvals to start without a dependency."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import OVERRIDE
from penstock.cli.backends.protocol import Shape
from penstock.cli.backends.protocol_flows import DecisionQuery, FlowRef


@click.group(cls=Group)
def override() -> None:
    """Grant, list and revoke approvals to start without a dependency."""


@override.command("grant")
@click.argument("pipeline")
@click.argument("partition")
@click.option("--phase", metavar="NAME", help="Only for this phase; all phases if omitted.")
@click.option("--processor", metavar="NAME", help="Only for this processor; all if omitted.")
@click.option("--dependency", metavar="TABLE", help="Table that may be missing; any if omitted.")
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--expires", metavar="DURATION", required=True, help="Lifetime, at most 7d.")
@click.option("--reason", metavar="TEXT", required=True, help="Reason, recorded with the approval.")
@click.option(
    "--notes", default="", metavar="TEXT", help="More detail, recorded with the approval."
)
@click.option("--dry-run", is_flag=True, help="Show what would be approved; change nothing.")
@click.pass_obj
def grant(app: App, /, **given: Any) -> None:
    """Approve starting without a dependency; waiting gates are evaluated again immediately.

    An override never satisfies a dependency declared with fail_if_missing. A phase that starts
    under an override is degraded.
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
            flow_ref = FlowRef(pipeline=given["pipeline"], partition=given["partition"],
                          customer=given["customer"])  # fmt: skip
            explanation = cases.flows.explain(flow_ref)
            app.emit({"would_grant": wanted}, lambda: _print_would(wanted, explanation))
            return
        made = cases.flows.grant(wanted)
        now = cases.now()

    def print_text() -> None:
        until = output.format_time(output.parse_time(made["expires_at"]), now)
        click.echo(f"{made['override_id']}: {_about(made)}, until {until}.")
        partition = output.escape_control(made["partition"])
        click.echo(f"The gates of open flows of {partition} are evaluated again now.")

    app.emit(made, print_text)


def _print_would(wanted: Shape, explanation: Shape) -> None:
    click.echo(f"Would approve that {_about(wanted)}, for {wanted['expires']}.")
    held = [story for story in explanation["phases"] if story["state"] in ("WAITING", "BLOCKED")]
    for story in held:
        click.echo(output.escape_control(f"  {story['phase']} {story['word']} {story['headline']}"))
    waiting = [one for one in explanation["still_open"] if one["state"] in ("WAITING", "BLOCKED")]
    for one in waiting:
        which = f"{one['phase']} {one['state'].lower()} in generation {one['generation']}"
        click.echo(output.escape_control(f"  {which} ({one['mode']}, {one['flow_id']})"))
    if not held and not waiting:
        click.echo("  No gate of this partition is waiting or blocked now.")


@override.command("list")
@click.option("--pipeline", metavar="NAME", help="Only approvals for this pipeline.")
@click.option("--partition", metavar="TEXT", help="Only approvals for this partition.")
@click.option("--customer", metavar="ID", help="Only approvals for this customer.")
@click.option("--all", "everything", is_flag=True, help="Include expired and revoked approvals.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, /, *, everything: bool, **given: Any) -> None:
    """List the approvals in force, newest first."""
    with app.use_cases() as cases:
        found = cases.flows.overrides(DecisionQuery(**given, live=not everything))
        now = cases.now()

    def print_text() -> None:
        if not found:
            app.hint("No approvals." if everything else "No approvals in force.")
            return
        output.print_table(
            ("OVERRIDE", "CUSTOMER", "PIPELINE", "PARTITION", "PHASE", "WITHOUT", "BY", "UNTIL",
             "REASON"),
            [
                (
                    one["override_id"], one["customer_id"], one["pipeline_template"],
                    one["partition"], one["phase"], one["dependency"] or "anything",
                    one["approved_by"],
                    "revoked" if one["revoked_at"]
                    else output.format_time_short(output.parse_time(one["expires_at"]), now),
                    output.first_line(one["reason"]),
                )
                for one in found
            ],
        )  # fmt: skip

    app.emit({"overrides": found}, print_text)


@override.command("revoke")
@click.argument("override_id", type=OVERRIDE)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.pass_obj
def revoke(app: App, override_id: str, reason: str) -> None:
    """Revoke an approval; phases that already started under it continue."""
    with app.use_cases() as cases:
        cases.flows.revoke(override_id, reason)
    outcome = {"override_id": override_id, "outcome": "revoked"}
    app.emit(outcome, lambda: click.echo(f"{override_id} revoked."))


def _about(one: Shape) -> str:
    what = one.get("dependency") or "anything that is missing"
    where = f"{one['pipeline_template']} {one['partition']}"
    phase = f" {one['phase']}" if one.get("phase") else ""
    return output.escape_control(f"{where}{phase} may start without {what}")
