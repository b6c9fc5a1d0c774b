"""`penstock runs`: list, show, submit, cancel and retry runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from msgspec.structs import replace

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import CONFIG, JSON, RUN, parse_pairs, parse_when
from penstock.cli.rows import collect
from penstock.client import UseCaseGroups
from penstock.core.clock import SECOND, from_datetime, iso, parse_duration, parse_iso, to_datetime
from penstock.core.errors import Forbidden, InvalidInput, NotFound
from penstock.core.records.record import Page
from penstock.entities.changed import received_text
from penstock.runs.records import LogEntry, Run, RunDetail, Submission
from penstock.runs.states import RunState

LIMIT_MAX = 10_000
_SEARCH_MAX = 1000
LIMIT = click.IntRange(1, LIMIT_MAX)
ENTRIES_SHOWN = 20
STATE_SHOWN = 500
"""Characters of a checkpoint that `runs show` prints."""
STOP_GRACE_US = 15 * SECOND
"""How long a processor may take to stop before the request counts as ignored."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
STATE = click.Choice([state.value for state in RunState], case_sensitive=False)


@click.group(cls=Group)
def runs() -> None:
    """List, show, submit, cancel and retry runs."""


@runs.command("list")
@click.option("--customer", metavar="ID", help="Only runs of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only runs of this pipeline.")
@click.option("--processor", metavar="NAME", help="Only runs of this processor.")
@click.option("--config-id", type=CONFIG, metavar="CFG", help="Only runs of this config.")
@click.option("--partition", metavar="TEXT", help="Only runs of this partition.")
@click.option(
    "--correlation", "correlation_id", metavar="ID", help="Only runs with this correlation id."
)
@click.option(
    "--message", "message_id", metavar="ID", help="Only runs that this message triggered."
)
@click.option("--error-type", metavar="NAME", help="Only runs that failed with this error type.")
@click.option(
    "--search",
    metavar="TEXT",
    help="Only this run, or runs whose correlation id or partition begins with the text; "
    "partitions need --customer.",
)
@click.option("--state", type=STATE, metavar="STATE", help=f"One of {', '.join(RunState)}.")
@click.option(
    "--since", metavar="WHEN", help="Only runs scheduled at or after this ISO time or age (2h, 3d)."
)
@click.option(
    "--until", metavar="WHEN", help="Only runs scheduled before this ISO time or age (2h, 3d)."
)
@click.option("--sla-breached", is_flag=True, help="Only runs that missed their SLA.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of runs.")
@click.option("--cursor", metavar="TEXT", help="Cursor from the previous page.")
@click.option(
    "--before",
    type=RUN,
    metavar="RUN",
    help="Continue after this run, the last one of the previous page. Requires --state.",
)
@click.pass_obj
def list_(app: App, /, limit: int, cursor: str | None, *, sla_breached: bool, **given: Any) -> None:
    """List runs: unfinished runs first, then by age, newest first.

    Long lists are paginated: the hint after each page contains the --cursor of the next.
    """
    if given["before"] is not None and given["state"] is None:
        raise InvalidInput("before", "to be used together with --state", "no --state")
    given["is_sla_met"] = False if sla_breached else None
    with app.connect() as client:
        # "2h ago" is relative to the database's or server's clock, which costs a round trip.
        before = client.now() if given["since"] or given["until"] else 0
        for name in ("since", "until"):
            at = parse_when(given[name], name, before)
            given[name] = None if at is None else to_datetime(at)
        try:
            page = collect(
                lambda n, at: client.runs.list(**given, limit=n, cursor=at or cursor), limit
            )
        except Forbidden as error:
            raise Forbidden(f"{error.message} Add --customer ID.") from None
        now = client.now()
    app.emit(page, lambda: _print_runs(app, page, now, given))


def _print_runs(app: App, page: Page[Run], now: int, given: dict[str, Any]) -> None:
    found = page.items
    if not found:
        is_narrowed = any(value is not None for value in given.values())
        app.hint("No runs match." if is_narrowed else "No runs yet.")
        app.hint(
            "Submit one: penstock runs submit PIPELINE   ·   schedule: penstock configs create"
        )
        return
    kinds = {(run.pipeline, run.processor) for run in found}
    names = [pipeline for pipeline, _ in kinds]
    several = {name for name in names if names.count(name) > 1}
    output.print_table(
        (
            "RUN",
            "STATE",
            "CUSTOMER",
            "PIPELINE",
            "PROCESSOR",
            "ATTEMPT",
            "OCCURRENCE",
            "TOOK",
            "LATE",
            "ERROR",
        ),
        [
            (
                run.run_id,
                _state(run),
                run.customer,
                run.pipeline,
                run.processor if run.pipeline in several else None,
                run.attempt if run.attempt > 1 else None,
                output.format_time_short(run.occurrence_time, now),
                _took(run, now),
                output.format_span(run.sla_breach) if run.sla_breach else None,
                output.error_text(run.error_type, run.error_class),
            )
            for run in found
        ],
    )
    if page.next_cursor is not None:
        when = [f" --{name} {iso(from_datetime(given[name]))}" for name in ("since", "until")
                if given[name] is not None]  # fmt: skip
        more = f"--cursor {page.next_cursor}{''.join(when)}"
        app.hint(f"{len(found)} shown, there may be more: add {more}")


def _state(run: Run) -> str:
    """Return a run's state, with the reason it waits or the word `dead`."""
    if run.state == "PENDING" and run.waits is not None:
        return f"PENDING {run.waits}"
    return f"{run.state} dead" if run.is_dead else run.state


def _took(run: Run, now: int) -> str:
    if run.started_at is None:
        return "-"
    return output.format_span((run.finished_at or to_datetime(now)) - run.started_at)


@runs.command("show")
@click.argument("run_id", type=RUN)
@click.pass_obj
def show(app: App, run_id: str) -> None:
    """Show one run with its attempts, progress and journal."""
    with app.connect() as client:
        detail = client.runs.detail(run_id)
        is_text = app.format == "table"
        hints = _hints(client, detail.run) if is_text else []
        entries = client.runs.logs(run_id).entries if is_text else []
        now = client.now()
    app.emit(detail, lambda: _print_detail(detail, entries, hints, now))


def _print_detail(detail: RunDetail, entries: list[LogEntry], hints: list[str], now: int) -> None:
    run = detail.run
    click.echo(f"{run.run_id}  {click.style(_state(run), bold=True)}")
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
        _print_entries(entries[-ENTRIES_SHOWN:])
        if more:
            hints = [*hints, f"The whole log: penstock runs logs {run.run_id}"]
    if detail.endpoint is not None:
        status = detail.endpoint.last_status
        replied = "" if status is None else f"  (last status {status})"
        click.echo(f"  endpoint  {output.escape_control(detail.endpoint.url)}{replied}")
    if detail.changed is not None:
        what = received_text(detail.changed.reason, detail.changed.entities_total)
        click.echo(f"  receives  {output.escape_control(what)}")
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
    """Print what a run did beside its result: actions, artifacts, its checkpoint."""
    if detail.caused_by is not None:
        click.echo(f"  created by  {detail.caused_by}")
    if detail.actions:
        click.echo("Actions")
    for one in detail.actions[:ENTRIES_SHOWN]:
        again = "  (done before under this key)" if one.is_repeat else ""
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
            ("took", _took(run, now)),
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


def _print_entries(entries: list[LogEntry]) -> None:
    """Print log entries; further lines of a message are indented."""
    for entry in entries:
        first, *rest = entry.message.splitlines() or [""]
        head = f"{output.format_time(entry.at)}  {entry.level:<8}{entry.logger}  {first}"
        click.echo(f"  {output.escape_control(head)}")
        output.print_block("\n".join(rest))


@runs.command("logs")
@click.argument("run_id", type=RUN)
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), metavar="LEVEL",
              help=f"Only entries of this level or above: {', '.join(LEVELS)}.")  # fmt: skip
@click.pass_obj
def logs(app: App, run_id: str, level: str | None) -> None:
    """Show the entries that the processor of a run logged."""
    with app.connect() as client:
        found = client.runs.logs(run_id)
    least = 0 if level is None else LEVELS.index(level.upper())
    shown = [entry for entry in found.entries if _rank(entry) >= least]
    app.emit(replace(found, entries=shown), lambda: _print_entries(shown))
    if not shown:
        app.hint("No entries. Log with `run.log` or standard logging in the processor's thread; "
                 "entries are stored every few seconds and when the run ends.")  # fmt: skip


def _rank(entry: LogEntry) -> int:
    """Return the position of an entry's level; an unknown one counts as INFO."""
    return LEVELS.index(entry.level if entry.level in LEVELS else "INFO")


def _hints(client: UseCaseGroups, run: Run) -> list[str]:
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


@runs.command("submit")
@click.argument("pipeline")
@click.option(
    "--customer", metavar="ID", default="default", help="Customer id. Defaults to `default`."
)
@click.option(
    "--processor", metavar="NAME", help="Processor to run; required if the pipeline has several."
)
@click.option("--partition", metavar="TEXT", help="Slice of data to process, usually a date.")
@click.option("--param", "param", multiple=True, metavar="KEY=VALUE", help="Set one parameter.")
@click.option("--parameters", type=JSON, metavar="JSON", help="Parameters as JSON, or @FILE.")
@click.option(
    "--priority",
    type=int,
    default=5,
    show_default=True,
    help="Priority from 1 (last) to 10 (first).",
)
@click.option("--at", metavar="TIME", help="Earliest start: an ISO time, or a delay such as 10m.")
@click.option("--in", "delay", metavar="DURATION", help="Delay before the start, such as 10m.")
@click.option(
    "--expires-after",
    metavar="DURATION",
    help="End a run as EXPIRED that is not started this long after it is due.",
)
@click.option("--ordering-key", metavar="TEXT", help="Runs with the same key run one at a time.")
@click.option("--key", metavar="TEXT", help="Idempotency key; repeating it returns the same run.")
@click.option("--mode", metavar="NAME", help="Mode of the processor's gate. Default: manual.")
@click.option("--force", is_flag=True, help="Bypass the processor's gate; recorded in the journal.")
@click.option("--reason", default="", metavar="TEXT", help="Reason for --force, recorded.")
@click.pass_obj
def submit(app: App, /, **given: Any) -> None:
    """Submit one run and print its id; the run is stored durably before the id is printed."""
    parameters = {**(given["parameters"] or {}), **parse_pairs(given["param"], "param")}
    with app.connect() as client:
        wanted = Submission(
            pipeline=given["pipeline"],
            customer=given["customer"],
            processor=given["processor"],
            partition=given["partition"],
            parameters=parameters or None,
            priority=given["priority"],
            **_start(given["at"], given["delay"]),
            expires_after=given["expires_after"],
            ordering_key=given["ordering_key"],
            mode=given["mode"],
            force=given["force"],
            force_reason=given["reason"],
        )
        made = client.runs.submit(wanted, key=given["key"])
        run = client.runs.get(made.run_id)
    app.emit(run, lambda: click.echo(run.run_id))
    starts = (
        f" It starts at {output.format_time(run.scheduled_time)}." if run.waits == "later" else ""
    )
    app.hint(f"Submitted {given['pipeline']} for {given['customer']}.{starts} "
            f"Follow it: penstock runs show {run.run_id}")  # fmt: skip


def _start(at: str | None, delay: str | None) -> dict[str, Any]:
    """Return the earliest start as fields of a submission: a time or a delay."""
    if at is not None and delay is not None:
        raise InvalidInput("at", "no time together with --in", at)
    if at is not None and "T" in at.upper():
        return {"at": to_datetime(parse_iso(at, "at"))}
    name, text = ("at", at) if delay is None else ("in", delay)
    if text is not None:
        parse_duration(text, name)
    return {"delay": text}


@runs.command("cancel")
@click.argument("run_id", type=RUN)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--force", is_flag=True, help="End a run that ignores the request to stop; it fails.")
@dry_run_option
@click.pass_obj
def cancel(app: App, run_id: str, reason: str, *, force: bool) -> None:
    """Cancel a run: immediately if it is pending, at its next heartbeat if it is running.

    Processors stop at run.check, run.progress or an await; child processes are killed. With --force
    the run ends without waiting for its processor: it fails with STOP_IGNORED, later writes of its
    code are rejected, and it no longer counts toward the concurrency.
    """
    with app.connect() as client:
        done = client.runs.cancel(run_id, reason=reason, force=force)
    words = {
        "cancelled": "is cancelled.",
        "asked": "is running; its worker will ask the processor to stop at the next heartbeat. If "
        f"the processor ignores that: penstock runs cancel --force {run_id}",
        "forced": "is ended as FAILED. The code that executes it may keep running until it returns "
        "or its worker is replaced.",
    }
    app.emit(done, lambda: click.echo(f"{run_id} {words[done.outcome]}"))


@runs.command("retry")
@click.argument("run_ids", type=RUN, nargs=-1, required=True)
@click.option("--param", "param", multiple=True, metavar="KEY=VALUE",
              help="Set a parameter instead of keeping those of the run.")  # fmt: skip
@click.option(
    "--config-parameters",
    is_flag=True,
    help="Use the current parameters of the run's config instead of those of the run.",
)
@dry_run_option
@click.pass_obj
def retry(
    app: App, run_ids: tuple[str, ...], param: tuple[str, ...], *, config_parameters: bool
) -> None:
    """Run finished runs again, now; an open dead letter of the run is closed as replayed.

    The new run keeps the scheduled time, partition, parameters and SLA of the old one.
    """
    with app.connect() as client:
        made = {
            run_id: client.runs.retry(
                run_id,
                parameters=_edited(client, run_id, param),
                use_config_parameters=config_parameters,
            ).run_id
            for run_id in run_ids
        }
    done = [
        {"run_id": run_id, "new_run_id": None if app.is_dry_run else new}
        for run_id, new in made.items()
    ]

    def print_text() -> None:
        for one in done:
            as_run = f" as {one['new_run_id']}" if one["new_run_id"] else ""
            click.echo(f"{one['run_id']} runs again{as_run}.")

    app.emit({"retried": done}, print_text)


def _edited(client: UseCaseGroups, run_id: str, param: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the parameters of a run with those of `--param`; None to keep them."""
    if not param:
        return None
    return {**(client.runs.get(run_id).parameters or {}), **parse_pairs(param, "param")}
