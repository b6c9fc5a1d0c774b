"""`penstock runs`: list, show, submit, cancel and retry runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import replace

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import CONFIG, FLOW, JSON, RUN, parse_pairs, parse_when
from penstock.cli.rows import collect
from penstock.client import UseCaseGroups
from penstock.core.clock import from_datetime, iso, parse_duration, parse_iso, to_datetime
from penstock.core.errors import Forbidden, InvalidInput
from penstock.core.records.record import Page, to_json_value
from penstock.runs.cli.details import (
    hints_for,
    print_detail,
    print_entries,
    state_text,
    time_taken,
)
from penstock.runs.client.filters import MARKS, SORTED_STATES
from penstock.runs.records import LogEntry, Run, Submission
from penstock.runs.states import RunState

LIMIT_MAX = 10_000
LIMIT = click.IntRange(1, LIMIT_MAX)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
TIMES = ("since", "until", "ended_since", "ended_until")
PENDING = ("ready", "later", "paused", "waiting")
ENDED = ("completed", "failed", "timeout", "cancelled", "expired")
SECONDARY = ("PROCESSOR", "ATTEMPT", "LATE")
"""Columns of a table of runs that a terminal omits if its lines are shorter than `WIDE`."""
WIDE = 105


class _State(click.Choice[str]):
    """A state of runs; what a pending run waits for is another option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the state; suggest `--waits` for a word of that option."""
        if isinstance(value, str) and value.lower() in MARKS:
            self.fail(
                f"{value!r} is no state: pending runs that are {value.lower()} are listed by "
                f"--waits {value.lower()}.", param, ctx,
            )  # fmt: skip
        return super().convert(value, param, ctx)


STATE = _State([state.value for state in RunState], case_sensitive=False)


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
@click.option("--flow-id", type=FLOW, metavar="FLOW", help="Only runs of this flow.")
@click.option("--state", type=STATE, metavar="STATE", help=f"One of {', '.join(RunState)}.")
@click.option(
    "--waits",
    type=click.Choice(tuple(MARKS)),
    metavar="WHY",
    help="Only pending runs with this admission: ready, later, paused, blocked, limited, gated or "
    "suspended; waiting covers the last four.",
)
@click.option(
    "--dead/--not-dead", "is_dead", default=None, help="Only dead letters, or all others."
)
@click.option(
    "--since", metavar="WHEN", help="Only runs scheduled at or after this ISO time or age (2h, 3d)."
)
@click.option(
    "--until", metavar="WHEN", help="Only runs scheduled before this ISO time or age (2h, 3d)."
)
@click.option("--ended-since", metavar="WHEN",
              help="Only runs that ended at or after this ISO time or age.")  # fmt: skip
@click.option("--ended-until", metavar="WHEN",
              help="Only runs that ended before this ISO time or age.")  # fmt: skip
@click.option("--sla-breached", is_flag=True, help="Only runs that missed their SLA.")
@click.option("--sort", type=click.Choice(tuple(SORTED_STATES)), metavar="ORDER", default="newest",
              help="newest; running_for or waiting_for: longest first; ended_at: most "
              "recent first.")  # fmt: skip
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
        raise InvalidInput("before", "--state as well", "no --state")
    given["is_sla_met"] = False if sla_breached else None
    with app.connect() as client:
        # "2h ago" is relative to the database's or server's clock, which costs a round trip.
        before = client.now() if any(given[name] for name in TIMES) else 0
        for name in TIMES:
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


@runs.command("counts")
@click.option("--customer", metavar="ID", help="Only runs of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only runs of this pipeline.")
@click.option("--processor", metavar="NAME", help="Only runs of this processor.")
@click.pass_obj
def counts(app: App, /, **given: Any) -> None:
    """Count active runs by state, and the runs that ended in the last 24 hours."""
    with app.connect() as client:
        found = client.runs.counts(**given)

    def print_text() -> None:
        for name, has_more in (
            ("running", False), ("claimed", False), ("pending", found.has_more_pending),
            *((f"  {one}", found.has_more_pending) for one in PENDING),
            *((one, found.has_more_ended) for one in ENDED),
        ):  # fmt: skip
            number = getattr(found, name.strip())
            if number is not None:
                click.echo(f"{name:<12}{number:>9,}{'+' if has_more else ''}")

    app.emit(found, print_text)
    if found.completed is None:
        app.hint("Ended runs are counted only without --pipeline and --processor.")


def _print_runs(app: App, page: Page[Run], now: int, given: dict[str, Any]) -> None:
    found = page.items
    if not found:
        chosen = {name for name, value in given.items() if value is not None}
        # An order selects, too: running_for lists runs that execute.
        if chosen - {"sort"} or given.get("sort") != "newest":
            app.hint("No runs match.")
            return
        app.hint("No runs yet.")
        app.hint(
            "Submit one: penstock runs submit PIPELINE   ·   schedule: penstock configs create"
        )
        return
    _print_table(
        (
            "RUN",
            "STATE",
            "CUSTOMER",
            "PIPELINE",
            "PROCESSOR",
            "ATTEMPT",
            "OCCURRENCE",
            "WORKER",
            "TOOK",
            "LATE",
            "ERROR",
        ),
        [
            (
                run.run_id,
                state_text(run),
                run.customer,
                run.pipeline,
                run.processor,
                run.attempt,
                output.format_time_short(run.occurrence_time, now),
                run.claimed_by,
                time_taken(run, now),
                output.format_span(run.sla_breach) if run.sla_breach else None,
                output.error_text(run.error_type, run.error_class),
            )
            for run in found
        ],
    )
    if page.next_cursor is not None:
        when = [f" --{name.replace('_', '-')} {iso(from_datetime(given[name]))}" for name in TIMES
                if given[name] is not None]  # fmt: skip
        more = f"--cursor {page.next_cursor}{''.join(when)}"
        app.hint(f"{len(found)} shown, there may be more: add {more}")


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of runs; a narrow terminal gets its main columns, whatever the rows have."""
    is_narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE
    shown = [n for n, name in enumerate(columns) if not (is_narrow and name in SECONDARY)]
    output.print_table([columns[n] for n in shown], [[row[n] for n in shown] for row in rows])


@runs.command("show")
@click.argument("run_id", type=RUN)
@click.pass_obj
def show(app: App, run_id: str) -> None:
    """Show one run with its attempts, progress and journal."""
    with app.connect() as client:
        detail = client.runs.detail(run_id)
        is_text = app.format == "table"
        hints = hints_for(client, detail.run) if is_text else []
        entries = client.runs.logs(run_id).entries if is_text else []
        now = client.now()
    app.emit(detail, lambda: print_detail(detail, entries, hints, now))


@runs.command("logs")
@click.argument("run_id", type=RUN)
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), metavar="LEVEL",
              help=f"Only entries of this level or above: {', '.join(LEVELS)}.")  # fmt: skip
@click.pass_obj
def logs(app: App, run_id: str, level: str | None) -> None:
    """Show the log entries of a run."""
    with app.connect() as client:
        found = client.runs.logs(run_id)
    least = 0 if level is None else LEVELS.index(level.upper())
    shown = [entry for entry in found.entries if _rank(entry) >= least]
    app.emit(replace(found, entries=shown), lambda: print_entries(shown))
    if not shown:
        app.hint("No entries. Log with `run.log` or standard logging in the processor's thread; "
                 "entries are stored every few seconds and when the run ends.")  # fmt: skip


def _rank(entry: LogEntry) -> int:
    """Return the position of an entry's level; an unknown one counts as INFO."""
    return LEVELS.index(entry.level if entry.level in LEVELS else "INFO")


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
    help="End the run as EXPIRED if it has not started this long after it is due.",
)
@click.option("--ordering-key", metavar="TEXT", help="Runs with the same key run one at a time.")
@click.option("--key", metavar="TEXT", help="Idempotency key; repeating it returns the same run.")
@click.option("--mode", metavar="NAME", help="Mode of the processor's gate. Default: manual.")
@click.option("--force", is_flag=True, help="Bypass the processor's gate; recorded in the journal.")
@click.option("--reason", default="", metavar="TEXT", help="Reason for --force, recorded.")
@dry_run_option
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
        if app.is_dry_run:
            _emit_submission(app, wanted, given["key"])
            return
        run = client.runs.get(made.run_id)
    app.emit(run, lambda: click.echo(run.run_id))
    starts = (
        f" It starts at {output.format_time(run.scheduled_time)}." if run.waits == "later" else ""
    )
    app.hint(f"Submitted {given['pipeline']} for {given['customer']}.{starts} "
            f"Follow it: penstock runs show {run.run_id}")  # fmt: skip


def _emit_submission(app: App, wanted: Submission, key: str | None) -> None:
    """Print what a dry run submits, without an id: that of its run is not used."""
    repeated = "" if key is None else f", unless an earlier one has the key {key!r}"
    text = f"A run of {wanted.pipeline} for {wanted.customer} is submitted{repeated}."
    app.emit({"run_id": None}, lambda: click.echo(output.escape_control(text)))


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
@click.option("--retry", is_flag=True, help="With --force: run it again now, as a new run.")
@dry_run_option
@click.pass_obj
def cancel(app: App, run_id: str, reason: str, *, force: bool, retry: bool) -> None:
    """Cancel a run: immediately if it is pending, at its next heartbeat if it is running.

    Processors stop at run.check, run.progress or an await; child processes are killed. With --force
    the run ends without waiting for its processor: it fails with STOP_IGNORED, later writes of its
    code are rejected, and it no longer counts toward the concurrency. It is not retried unless
    --retry is given.
    """
    if retry and not force:
        raise InvalidInput("retry", "--force as well", "no --force")
    with app.connect() as client:
        done = client.runs.cancel(run_id, reason=reason, force=force)
        again = retry and done.outcome == "forced" and not app.is_dry_run
        made = client.runs.retry(run_id).run_id if again else None
    words = {
        "cancelled": "is cancelled.",
        "asked": "is running; its worker will ask the processor to stop at the next heartbeat. If "
        f"the processor ignores that: penstock runs cancel --force {run_id}",
        "forced": "ended as FAILED. The code that executes it may keep running until it returns "
        "or its worker is replaced.",
    }
    record = done if made is None else {**to_json_value(done), "new_run_id": made}
    then = "" if made is None else f" {made} is its new run."
    app.emit(record, lambda: click.echo(f"{run_id} {words[done.outcome]}{then}"))


@runs.command("retry")
@click.argument("run_ids", type=RUN, nargs=-1, required=True)
@click.option("--param", "param", multiple=True, metavar="KEY=VALUE",
              help="Change one parameter; the others keep the run's values.")  # fmt: skip
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
    """Return the parameters of a run, changed by `--param`; None to keep them."""
    if not param:
        return None
    return {**(client.runs.get(run_id).parameters or {}), **parse_pairs(param, "param")}
