"""Output of one run on the command line."""

from __future__ import annotations

from datetime import datetime

import click

from penstock.cli import output
from penstock.client import UseCaseGroups
from penstock.core.clock import SECOND, from_datetime, to_datetime
from penstock.core.errors import NotFound
from penstock.entities.changed import received_text
from penstock.runs.records import LogEntry, Run, RunDetail

ENTRIES_SHOWN = 20
STATE_SHOWN = 500
"""Maximum number of characters of a checkpoint that `runs show` prints."""
STOP_GRACE_US = 15 * SECOND
"""How long a processor may take to stop before the request counts as ignored."""
_SEARCH_MAX = 1000


def print_detail(detail: RunDetail, entries: list[LogEntry], hints: list[str], now: int) -> None:
    """Print a run with the end of its log, its attempts and its journal."""
    run = detail.run
    click.echo(f"{run.run_id}  {click.style(state_text(run), bold=True)}")
    _print_facts(run, now)
    why = next((entry.why for entry in detail.journal if entry.action == "ended"), None)
    if run.is_dead and why:
        click.echo(f"  {output.escape_control(why)}")
    output.print_traceback(run.error_details)
    if entries:
        more = (
            "" if len(entries) <= ENTRIES_SHOWN else f" (last {ENTRIES_SHOWN} of {len(entries):,})"
        )
        click.echo(f"Log{more}")
        print_entries(entries[-ENTRIES_SHOWN:])
        if more:
            hints = [*hints, f"The whole log: penstock runs logs {run.run_id}"]
    if detail.endpoint is not None:
        status = detail.endpoint.last_status
        replied = "" if status is None else f"  (last status {status})"
        click.echo(f"  endpoint  {output.escape_control(detail.endpoint.url)}{replied}")
    if detail.changed is not None:
        what = received_text(detail.changed.reason, detail.changed.entities_total)
        click.echo(f"  receives  {output.escape_control(what)}")
    if detail.eta_p50_at is not None:
        p50, p90 = (output.format_time(at) for at in (detail.eta_p50_at, detail.eta_p90_at))
        click.echo(f"  eta       {p50}, in nine of ten cases by {p90}")
    if detail.progress is not None:
        share = detail.progress.percent
        percent = "" if share is None else f"{share:.0f} % "
        click.echo(f"  progress  {percent}{output.escape_control(detail.progress.stage or '')}")
    _print_made(detail)
    if detail.attempts:
        click.echo("Other attempts")
        for other in detail.attempts:
            why = output.error_text(other.error_type, other.error_class, other.error_details)
            shown = f"{other.run_id}  #{other.attempt}  {other.state}  {output.first_line(why)}"
            click.echo(f"  {output.escape_control(shown.rstrip())}")
    click.echo("Journal")
    for entry in detail.journal:
        edge = entry.to_state or ""
        edge = f"{entry.from_state} → {edge}" if entry.from_state else edge
        why = f"  ({output.escape_control(entry.why)})" if entry.why else ""
        when = output.format_time(entry.at)
        click.echo(f"  {when}  {entry.action} by {entry.actor}  {edge}{why}")
    for hint in hints:
        click.echo(hint)


def _print_made(detail: RunDetail) -> None:
    """Print the actions, artifacts and checkpoint of a run."""
    if detail.caused_by is not None:
        click.echo(f"  created by  {detail.caused_by}")
    if detail.actions:
        click.echo("Actions")
    for one in detail.actions[:ENTRIES_SHOWN]:
        again = "  (already done under this key)" if one.is_repeat else ""
        shown = " ".join(filter(None, (one.target, one.partition)))
        click.echo(f"  {one.kind:<8}{output.escape_control(shown)} → {one.subject}{again}")
    if len(detail.actions) > ENTRIES_SHOWN:
        click.echo(f"  and {len(detail.actions) - ENTRIES_SHOWN:,} more: add --json")
    if detail.sub_flows:
        click.echo("Sub-flows")
    for flow in detail.sub_flows:
        shown = f"{flow.flow_id}  {flow.pipeline} {flow.partition}  {flow.state}"
        click.echo(f"  {output.escape_control(shown)}")
    if detail.artifacts:
        click.echo("Artifacts")
    for made in detail.artifacts:
        size = None if made.size is None else f"{made.size:,} bytes"
        facts = "  ".join(filter(None, (made.name, made.uri, size, made.checksum)))
        click.echo(f"  {output.escape_control(facts)}")
    if detail.checkpoint is not None:
        click.echo(f"Checkpoint of {output.format_time(detail.checkpoint.saved_at)}")
        click.echo(f"  {output.escape_control(str(detail.checkpoint.state))[:STATE_SHOWN]}")


def _print_facts(run: Run, now: int) -> None:
    def at(when: datetime | None) -> str:
        return output.format_time(when, now)

    error = output.error_text(run.error_type, run.error_class, run.error_details)
    sla = {True: "yes", False: "no (SLA breach)", None: None}[run.is_sla_met]
    stages = [f"{name} {output.format_span(span)}" for name, span in (run.stages or {}).items()]
    cancel = f"{at(run.cancel_requested_at)} by {run.cancel_requested_by}{_ignored(run, now)}"
    output.print_facts(
        [
            ("customer", run.customer),
            ("pipeline", f"{run.pipeline}/{run.phase}/{run.processor}"),
            ("config", run.config_id),
            ("partition", run.partition),
            ("occurrence", at(run.occurrence_time)),
            ("due", at(run.scheduled_time)),
            ("attempt", run.attempt),
            ("lapsed claims", run.lapsed_claims or None),
            ("priority", run.priority),
            ("started", at(run.started_at)),
            ("expires", at(run.expires_at)),
            ("times out", at(run.timeout_at)),
            ("finished", at(run.finished_at)),
            ("took", time_taken(run, now)),
            ("stages", ", ".join(stages)),
            ("claimed by", run.claimed_by),
            ("started on time", sla),
            ("records", run.records),
            ("bytes", run.bytes_processed),
            ("cost", run.estimated_cost),
            ("parameters", run.parameters),
            ("result", run.result),
            ("error", error),
            ("stop requested", None if run.cancel_requested_at is None else cancel),
            ("source", run.trigger_source),
            ("message", run.trigger_message_id),
            ("correlation", run.correlation_id),
        ]
    )


def _ignored(run: Run, now: int) -> str:
    """Return a note about a stop request that the processor ignored."""
    asked = run.cancel_requested_at
    is_late = asked is not None and now - from_datetime(asked) > STOP_GRACE_US
    return ", ignored so far" if is_late and run.finished_at is None else ""


def print_entries(entries: list[LogEntry]) -> None:
    """Print log entries; further lines of a message are indented."""
    for entry in entries:
        first, *rest = entry.message.splitlines() or [""]
        head = f"{output.format_time(entry.at)}  {entry.level:<8}{entry.logger}  {first}"
        click.echo(f"  {output.escape_control(head)}")
        output.print_block("\n".join(rest))


def state_text(run: Run) -> str:
    """Return a run's state, with the reason it waits or the word `dead`."""
    if run.state == "PENDING" and run.waits is not None:
        return f"PENDING {run.waits}"
    return f"{run.state} dead" if run.is_dead else run.state


def time_taken(run: Run, now: int) -> str:
    """Return how long a run has been executing, or how long it took."""
    if run.started_at is None:
        return "-"
    return output.format_span((run.finished_at or to_datetime(now)) - run.started_at)


def hints_for(client: UseCaseGroups, run: Run) -> list[str]:
    """Return the commands that apply to a run in its state, or how its dead letter was closed."""
    run_id = run.run_id
    if run.finished_at is None:
        why = [f"Why it waits: penstock why {run_id}"] if run.state == "PENDING" else []
        if run.cancel_requested_at is not None:
            return [*why, f"End it without waiting: penstock runs cancel --force {run_id}"]
        return [*why, f"Cancel it: penstock runs cancel {run_id}"]
    if not run.is_dead:
        return []
    try:
        status = client.dead_letters.get(run_id).dead_letter.status
    except NotFound:
        return []
    if status == "open":
        return [f"Retry: penstock runs retry {run_id}   ·   "
                f'discard: penstock dlq discard {run_id} --reason "…"']  # fmt: skip
    if status == "replayed":
        return [_replayed(client, run)]
    return [f"Its dead letter was {status}."]


def _replayed(client: UseCaseGroups, run: Run) -> str:
    """Return the sentence that names the run that replayed a dead run, and its actor."""
    for other in client.runs.list(customer=run.customer, limit=_SEARCH_MAX).items:
        if other.parent_run_id == run.run_id:
            again = other.run_id
            journal = client.runs.detail(again).journal
            by = f" by {journal[0].actor}" if journal else ""
            return f"Replayed as {again}{by}: penstock runs show {again}"
    return "It was replayed."
