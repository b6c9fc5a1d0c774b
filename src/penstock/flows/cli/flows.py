"""`penstock flows`: list, show and cancel flows."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import FLOW, parse_when
from penstock.cli.rows import collect
from penstock.core.clock import to_datetime
from penstock.core.errors import IllegalTransition
from penstock.entities.changed import counts_text, received_text
from penstock.flows.explain.cli.explain import print_explanation
from penstock.flows.explain.records import FlowExplanation
from penstock.flows.records import Flow, FlowDetail

LIMIT = click.IntRange(1, 10_000)
STATES = ("OPEN", "WAITING", "BLOCKED", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED")


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
@click.option("--only", type=click.Choice(("open", "trouble")), metavar="PART",
              help="open, or trouble: failed, degraded, blocked or past the deadline.")  # fmt: skip
@click.option("--since", metavar="WHEN", help="Only flows opened since this ISO time or age (2d).")
@click.option("--until", metavar="WHEN", help="Only flows opened before this ISO time or age.")
@click.option("--search", metavar="TEXT",
              help="Id, or beginning of a partition, pipeline or customer.")  # fmt: skip
@click.option("--sort", type=click.Choice(("newest", "oldest", "risk")), metavar="ORDER",
              help="newest; for open flows also oldest or risk.")  # fmt: skip
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List flows, newest first; an open flow is WAITING or BLOCKED if one of its phases is."""
    limit = given.pop("limit")
    given["sort"] = given["sort"] or "newest"
    is_filtered = any(value for name, value in given.items() if name != "sort")
    with app.connect() as client:
        now = client.now()
        for name in ("since", "until"):
            at = parse_when(given[name], name, now)
            given[name] = None if at is None else to_datetime(at)
        page = collect(
            lambda n, cursor: client.flows.list(**given, risk=True, limit=n, cursor=cursor), limit
        )
    first = "No flows match." if is_filtered else "No flows yet."
    app.emit_page(
        page,
        {
            "FLOW": lambda flow: flow.flow_id,
            "STATE": _state_text,
            "CUSTOMER": lambda flow: flow.customer,
            "PIPELINE": lambda flow: flow.pipeline,
            "PARTITION": lambda flow: flow.partition,
            "MODE": lambda flow: flow.mode,
            "GEN": lambda flow: flow.generation,
            "OPENED": lambda flow: output.format_time_short(flow.created_at, now),
            "DONE": _done_text,
            "ETA": lambda flow: output.format_time_short(flow.eta_p50_at, now),
            "WITHOUT": lambda flow: output.first_line(", ".join(flow.missing)),
        },
        empty=f"{first}\nStart one: penstock trigger PIPELINE PARTITION",
        secondary=("MODE", "OPENED", "GEN"),
    )


@flows.command("show")
@click.argument("flow_id", type=FLOW)
@click.pass_obj
def show(app: App, flow_id: str) -> None:
    """Show one flow with its phases, gate verdicts and reported completions."""
    with app.connect() as client:
        detail = client.flows.get(flow_id)
        now = client.now()
    app.emit(detail, lambda: _print_detail(detail, now))


def _print_detail(detail: FlowDetail, now: int) -> None:
    flow = detail.flow
    click.echo(f"{flow.flow_id}  {click.style(flow.state, bold=True)}")
    output.print_facts(
        [
            ("customer", flow.customer),
            ("pipeline", flow.pipeline),
            ("partition", flow.partition),
            ("mode", flow.mode),
            ("generation", flow.generation),
            ("starts at", flow.start_phase),
            ("inherits from", flow.parent_flow_id),
            ("opened", output.format_time(flow.created_at, now)),
            ("opened by", f"{flow.opened_by} ({flow.trigger_source})"),
            ("ended", output.format_time(flow.ended_at, now)),
            ("reason", flow.cancel_reason),
            ("deadline", output.format_time(flow.deadline_at, now)),
            ("probably ends", output.format_time(flow.eta_p50_at, now)),
            ("at the latest", output.format_time(flow.eta_p90_at, now)),
            ("risk", _risk_text(flow)),
            ("without", ", ".join(flow.missing)),
            ("correlation", flow.correlation_id),
        ]
    )
    reported = {(one.phase, one.processor): one for one in detail.completions}
    output.print_table(
        ("PHASE", "PROCESSOR", "STATE", "SINCE", "NEXT CHECK", "VERDICT", "MISSING"),
        [
            (
                row.phase,
                row.processor,
                row.state,
                output.format_time_short(row.since, now),
                output.format_time_short(row.next_probe_at, now),
                row.verdict,
                output.first_line(", ".join(row.missing)),
            )
            for row in detail.phases
        ],
    )
    for (phase, processor), one in reported.items():
        run = one.run_id or one.execution_id or ""
        at = output.format_time(one.at)
        text = f"  {at}  {phase}/{processor} {one.status}  {output.escape_control(run)}".rstrip()
        done = "" if one.completeness_pct is None else f"  {one.completeness_pct:.1f} % complete"
        changed = one.everything_changed or counts_text(one.entities_total or {})
        click.echo(text + done + (f"  changed {output.escape_control(changed)}" * bool(changed)))
    for given in detail.inputs:
        what = received_text(given.reason, given.entities_total)
        click.echo(f"  {given.phase}/{given.processor} receives {output.escape_control(what)}")
    click.echo(f"Explain it: penstock explain {flow.flow_id}")


def _state_text(flow: Flow) -> str:
    state = flow.phase_state or flow.state
    return f"{state} (superseded)" if flow.is_superseded else state


def _done_text(flow: Flow) -> str:
    return "" if flow.phases_expected is None else f"{flow.phases_completed}/{flow.phases_expected}"


def _risk_text(flow: Flow) -> str | None:
    """Return the probability of a miss in words; None without a forecast."""
    if flow.slo_miss_probability is None:
        return None
    by = output.format_time(flow.slo_at)
    return f"{output.format_share(flow.slo_miss_probability)} probability of ending after {by}"


@flows.command("cancel")
@click.argument("flow_id", type=FLOW)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--dry-run", is_flag=True, help="Show what would be cancelled; change nothing.")
@click.pass_obj
def cancel(app: App, flow_id: str, reason: str, dry_run: bool) -> None:
    """Cancel a flow: pending runs are cancelled, running ones stop at their next heartbeat.

    Completed phases stay complete. The partition can be triggered again.
    """
    with app.connect() as client:
        if dry_run:
            explanation = client.diagnostics.explain_flow(flow_id)
            assert explanation.flow is not None
            state = explanation.flow.state
            if state != "OPEN":
                raise IllegalTransition("flow", flow_id, state, "CANCELLED")
            ends = [one.phase for one in explanation.phases
                    if one.state in ("PENDING", "WAITING", "BLOCKED", "IN_PROGRESS")]  # fmt: skip
            outcome = {"flow_id": flow_id, "would_end": ends}
            app.emit(outcome, lambda: _print_would(explanation, ends))
            return
        done = client.flows.cancel(flow_id, reason)
    text = f"{flow_id} cancelled; {output.plural(done.runs, 'run')} cancelled or stopping."
    app.emit(done, lambda: click.echo(text))


def _print_would(explanation: FlowExplanation, ends: list[str]) -> None:
    print_explanation(explanation, brief=True, with_actions=False)
    click.echo(f"Would cancel: {', '.join(ends) or 'only the flow itself'}.")
