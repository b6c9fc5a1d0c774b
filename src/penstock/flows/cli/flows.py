"""`penstock flows`: list, show and cancel flows."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import FLOW
from penstock.cli.backends.protocol import Shape
from penstock.cli.backends.protocol_flows import FlowQuery
from penstock.core.errors import IllegalTransition
from penstock.flows.explain.cli.explain import print_explanation

LIMIT = click.IntRange(1, 10_000)
STATES = ("OPEN", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED")


@click.group(cls=Group)
def flows() -> None:
    """List, show and cancel flows."""


@flows.command("list")
@click.option("--customer", metavar="ID", help="Only flows of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only flows of this pipeline.")
@click.option("--partition", metavar="TEXT", help="Only flows of this partition.")
@click.option("--mode", metavar="NAME", help="Only flows in this mode.")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), metavar="STATE",
              help=f"One of {', '.join(STATES)}.")  # fmt: skip
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List flows, newest first."""
    asked = FlowQuery(**given)
    with app.use_cases() as cases:
        found = cases.flows.page(asked)
        now = cases.now()
    app.emit({"flows": found}, lambda: _print_flows(app, found, now, asked))


def _print_flows(app: App, found: list[Shape], now: int, asked: FlowQuery) -> None:
    if not found:
        app.hint("No flows match." if asked != FlowQuery(limit=asked.limit) else "No flows yet.")
        app.hint("Start one: penstock trigger PIPELINE PARTITION")
        return
    output.print_table(
        ("FLOW", "STATE", "CUSTOMER", "PIPELINE", "PARTITION", "MODE", "GEN", "OPENED", "WITHOUT"),
        [
            (
                flow["flow_id"], flow["state"], flow["customer_id"], flow["pipeline_template"],
                flow["partition"], flow["mode"], flow["generation"],
                output.format_time_short(output.parse_time(flow["created_at"]), now),
                output.first_line(", ".join(flow["missing"])),
            )
            for flow in found
        ],
    )  # fmt: skip
    if len(found) == asked.limit:
        app.hint(f"{len(found)} shown, there may be more: add --limit {asked.limit * 2}")


@flows.command("show")
@click.argument("flow_id", type=FLOW)
@click.pass_obj
def show(app: App, flow_id: str) -> None:
    """Show one flow with its phases, gate verdicts and reported completions."""
    with app.use_cases() as cases:
        detail = cases.flows.detail(flow_id)
        now = cases.now()
    app.emit(detail, lambda: _print_detail(detail, now))


def _print_detail(detail: Shape, now: int) -> None:
    flow = detail["flow"]
    click.echo(f"{flow['flow_id']}  {click.style(flow['state'], bold=True)}")
    output.print_facts(
        [
            ("customer", flow["customer_id"]),
            ("pipeline", flow["pipeline_template"]),
            ("partition", flow["partition"]),
            ("mode", flow["mode"]),
            ("generation", flow["generation"]),
            ("starts at", flow["start_phase"]),
            ("inherits from", flow["parent_flow_id"]),
            ("opened", output.format_time(output.parse_time(flow["created_at"]), now)),
            ("opened by", f"{flow['opened_by']} ({flow['trigger_source']})"),
            ("ended", output.format_time(output.parse_time(flow["ended_at"]), now)),
            ("deadline", output.format_time(output.parse_time(flow["deadline_at"]), now)),
            ("without", ", ".join(flow["missing"])),
            ("correlation", flow["correlation_id"]),
        ]
    )
    reported = {(one["phase"], one["processor"]): one for one in detail["completions"]}
    output.print_table(
        ("PHASE", "PROCESSOR", "STATE", "SINCE", "NEXT CHECK", "VERDICT", "MISSING"),
        [
            (
                row["phase"],
                row["processor"],
                row["state"],
                output.format_time_short(output.parse_time(row["since"]), now),
                output.format_time_short(output.parse_time(row["next_look_at"]), now),
                row["verdict"],
                output.first_line(", ".join(row["missing"])),
            )
            for row in detail["phases"]
        ],
    )
    for (phase, processor), one in reported.items():
        run = one["run_id"] or one["execution_id"] or ""
        at = output.format_time(output.parse_time(one["at"]))
        click.echo(
            f"  {at}  {phase}/{processor} {one['status']}  {output.escape_control(run)}".rstrip()
        )
    click.echo(f"Explain it: penstock explain {flow['flow_id']}")


@flows.command("cancel")
@click.argument("flow_id", type=FLOW)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--dry-run", is_flag=True, help="Show what would be cancelled; change nothing.")
@click.pass_obj
def cancel(app: App, flow_id: str, reason: str, dry_run: bool) -> None:
    """Cancel a flow: pending runs are cancelled, running ones stop at their next heartbeat.

    Completed phases stay complete. The partition can be triggered again.
    """
    with app.use_cases() as cases:
        if dry_run:
            explanation = cases.flows.explain_flow(flow_id)
            state = explanation["flow"]["state"]
            if state != "OPEN":
                raise IllegalTransition("flow", flow_id, state, "CANCELLED")
            ends = [s["phase"] for s in explanation["phases"]
                    if s["state"] in ("PENDING", "WAITING", "BLOCKED", "IN_PROGRESS")]  # fmt: skip
            outcome = {"flow_id": flow_id, "would_end": ends}
            app.emit(outcome, lambda: _print_would(explanation, ends))
            return
        runs = cases.flows.cancel(flow_id, reason)
    text = f"{flow_id} cancelled; {output.plural(runs, 'run')} cancelled or stopping."
    app.emit({"flow_id": flow_id, "runs": runs}, lambda: click.echo(text))


def _print_would(explanation: Shape, ends: list[str]) -> None:
    print_explanation({**explanation, "actions": []}, brief=True)
    click.echo(f"Would cancel: {', '.join(ends) or 'only the flow itself'}.")
