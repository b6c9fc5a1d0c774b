"""`penstock override`: time-limited, recorded approvals to start without a dependency."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import OVERRIDE
from penstock.cli.rows import collect
from penstock.flows.explain.records import FlowExplanation
from penstock.flows.gates.records import GateOverride, OverrideRequest


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
    wanted = OverrideRequest(
        pipeline=given["pipeline"],
        partition=given["partition"],
        phase=given["phase"],
        processor=given["processor"],
        dependency=given["dependency"],
        customer=given["customer"],
        expires=given["expires"],
        reason=given["reason"],
        notes=given["notes"],
    )
    with app.connect() as client:
        if given["dry_run"]:
            explanation = client.diagnostics.explain(
                wanted.pipeline, wanted.partition, customer=wanted.customer
            )
            app.emit({"would_grant": wanted}, lambda: _print_would(wanted, explanation))
            return
        made = client.overrides.grant(wanted, source="cli")
        now = client.now()

    def print_text() -> None:
        until = output.format_time(made.expires_at, now)
        click.echo(f"{made.override_id}: {_about(made)}, until {until}.")
        partition = output.escape_control(made.partition)
        click.echo(f"The gates of open flows of {partition} are evaluated again now.")

    app.emit(made, print_text)


def _print_would(wanted: OverrideRequest, explanation: FlowExplanation) -> None:
    click.echo(f"Would approve that {_about(wanted)}, for {wanted.expires}.")
    held = [story for story in explanation.phases if story.state in ("WAITING", "BLOCKED")]
    for story in held:
        click.echo(output.escape_control(f"  {story.phase} {story.word} {story.headline}"))
    waiting = [one for one in explanation.still_open if one.state in ("WAITING", "BLOCKED")]
    for one in waiting:
        which = f"{one.phase} {(one.state or '').lower()} in generation {one.generation}"
        click.echo(output.escape_control(f"  {which} ({one.mode}, {one.flow_id})"))
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
    limit = given.pop("limit")
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.overrides.list(
                **given, live=not everything, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "OVERRIDE": lambda one: one.override_id,
            "CUSTOMER": lambda one: one.customer,
            "PIPELINE": lambda one: one.pipeline,
            "PARTITION": lambda one: one.partition,
            "PHASE": lambda one: one.phase,
            "WITHOUT": lambda one: one.dependency or "anything",
            "BY": lambda one: one.approved_by,
            "UNTIL": lambda one: (
                "revoked" if one.revoked_at else output.format_time_short(one.expires_at, now)
            ),
            "REASON": lambda one: output.first_line(one.reason),
        },
        empty="No approvals." if everything else "No approvals in force.",
    )


@override.command("revoke")
@click.argument("override_id", type=OVERRIDE)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@dry_run_option
@click.pass_obj
def revoke(app: App, override_id: str, reason: str) -> None:
    """Revoke an approval; phases that already started under it continue."""
    with app.connect() as client:
        client.overrides.revoke(override_id, reason)
    outcome = {"override_id": override_id, "outcome": "revoked"}
    app.emit(outcome, lambda: click.echo(f"{override_id} revoked."))


def _about(one: OverrideRequest | GateOverride) -> str:
    what = one.dependency or "anything that is missing"
    phase = f" {one.phase}" if one.phase else ""
    return output.escape_control(f"{one.pipeline} {one.partition}{phase} may start without {what}")
