"""`penstock runs`: list, show, submit, cancel and retry runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import JSON, RUN, parse_pairs, parse_when
from penstock.cli.backends.protocol import RunQuery, Shape, UseCases
from penstock.core.clock import iso, parse_duration
from penstock.core.errors import InvalidInput, NotFound
from penstock.runs.states import RunState

LIMIT_MAX = 10_000
_SEARCH_MAX = 1000
LIMIT = click.IntRange(1, LIMIT_MAX)
STATE = click.Choice([state.value for state in RunState], case_sensitive=False)


@click.group(cls=Group)
def runs() -> None:
    """List, show, submit, cancel and retry runs."""


@runs.command("list")
@click.option("--customer", metavar="ID", help="Only runs of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only runs of this pipeline.")
@click.option("--state", type=STATE, metavar="STATE", help=f"One of {', '.join(RunState)}.")
@click.option(
    "--since", metavar="WHEN", help="Only occurrences at or after this ISO time or age (2h, 3d)."
)
@click.option(
    "--until", metavar="WHEN", help="Only occurrences before this ISO time or age (2h, 3d)."
)
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of runs.")
@click.option("--before", type=RUN, metavar="RUN", help="Continue after this run; needs --state.")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List runs: unfinished runs first, then by age, newest first."""
    if given["before"] is not None and given["state"] is None:
        raise InvalidInput("before", "to be used together with --state", "no --state")
    with app.use_cases() as cases:
        # "2h ago" is relative to the database's or server's clock, which costs a round trip.
        before = cases.now() if given["since"] or given["until"] else 0
        for name in ("since", "until"):
            given[name] = parse_when(given[name], name, before)
        asked = RunQuery(**given)
        found = cases.runs(asked)
        now = cases.now()
    app.emit({"runs": found}, lambda: _print_runs(app, found, now, asked))


def _print_runs(app: App, found: list[Shape], now: int, asked: RunQuery) -> None:
    if not found:
        is_narrowed = replace(asked, limit=RunQuery().limit, before=None) != RunQuery()
        app.hint("No runs match." if is_narrowed else "No runs yet.")
        app.hint(
            "Submit one: penstock runs submit PIPELINE   ·   schedule: penstock configs create"
        )
        return
    kinds = {(run["pipeline_template"], run["processor"]) for run in found}
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
            "ERROR",
        ),
        [
            (
                run["run_id"],
                output.format_run_state(run),
                run["customer_id"],
                run["pipeline_template"],
                run["processor"] if run["pipeline_template"] in several else None,
                run["attempt_number"] if run["attempt_number"] > 1 else None,
                output.format_time_short(output.parse_time(run["slot"]), now),
                _took(run, now),
                run["error_type"],
            )
            for run in found
        ],
    )
    if len(found) == asked.limit:
        last = found[-1]["run_id"]
        more = f"--before {last}" if asked.state else f"--limit {asked.limit * 2}"
        app.hint(f"{len(found)} shown, there may be more: add {more}")


def _took(run: Shape, now: int) -> str:
    started = output.parse_time(run["execution_start_time"])
    if started is None:
        return "-"
    return output.format_span((output.parse_time(run["execution_end_time"]) or now) - started)


@runs.command("show")
@click.argument("run_id", type=RUN)
@click.pass_obj
def show(app: App, run_id: str) -> None:
    """Show one run with its attempts, progress and journal."""
    with app.use_cases() as cases:
        detail = cases.run(run_id)
        hints = [] if app.is_json else _hints(app, cases, detail["run"])
        now = cases.now()
    app.emit(detail, lambda: _print_detail(detail, hints, now))


def _print_detail(detail: Shape, hints: list[str], now: int) -> None:
    run = detail["run"]
    click.echo(f"{run['run_id']}  {click.style(output.format_run_state(run), bold=True)}")

    def at(name: str) -> str:
        return output.format_time(output.parse_time(run[name]), now)

    error = f"{run['error_type']}: {output.error_message(run['error_details'])}"
    sla = {True: "yes", False: "no (SLA breach)", None: None}[run["sla_met"]]
    output.print_facts(
        [
            ("customer", run["customer_id"]),
            ("pipeline", f"{run['pipeline_template']}/{run['phase']}/{run['processor']}"),
            ("config", run["config_id"]),
            ("partition", run["partition"]),
            ("occurrence", at("slot")),
            ("due", at("scheduled_time")),
            ("attempt", run["attempt_number"]),
            ("priority", run["execution_priority"]),
            ("started", at("execution_start_time")),
            ("finished", at("execution_end_time")),
            ("took", _took(run, now)),
            ("claimed by", run["claimed_by"]),
            ("started on time", sla),
            ("records", run["records_processed"]),
            ("parameters", run["parameters"]),
            ("result", run["result_summary"]),
            ("error", error if run["error_type"] else None),
            ("source", run["trigger_source"]),
        ]
    )
    if detail["progress"] is not None:
        progress = detail["progress"]
        share = progress["progress_percentage"]
        percent = "" if share is None else f"{share:.0f} % "
        click.echo(f"  progress  {percent}{output.escape_control(progress['current_stage'] or '')}")
    if detail["attempts"]:
        click.echo("Other attempts")
        for other in detail["attempts"]:
            why = f"  {other['error_type']}" if other["error_type"] else ""
            click.echo(f"  {other['run_id']}  #{other['attempt_number']}  {other['state']}{why}")
    click.echo("Journal")
    for row in detail["journal"]:
        edge = row["to_state"] or ""
        edge = f"{row['from_state']} → {edge}" if row["from_state"] else edge
        why = f"  ({output.escape_control(row['why'])})" if row["why"] else ""
        when = output.format_time(output.parse_time(row["at"]))
        click.echo(f"  {when}  {row['action']} by {row['actor']}  {edge}{why}")
    for hint in hints:
        click.echo(hint)


def _hints(app: App, cases: UseCases, run: Shape) -> list[str]:
    """Return the commands that apply to a run in its state, or how its dead letter was closed."""
    run_id = run["run_id"]
    if run["execution_end_time"] is None:
        why = [f"Why it waits: penstock why {run_id}"] if run["state"] == "PENDING" else []
        return [*why, f"Cancel it: penstock runs cancel {run_id}"]
    if not run["is_dead"]:
        return []
    try:
        with app.connect() as client:
            status = client.dead_letters.get(run_id).dead_letter.status
    except NotFound:
        return []
    if status == "open":
        return [f"Retry: penstock runs retry {run_id}   ·   "
                f'discard: penstock dlq discard {run_id} --reason "…"']  # fmt: skip
    if status == "replayed":
        return [_replayed(cases, run)]
    return [f"Its dead letter was {status}."]


def _replayed(cases: UseCases, run: Shape) -> str:
    """Return the sentence that names the run that replayed a dead run, and its actor."""
    for other in cases.runs(RunQuery(customer=run["customer_id"], limit=_SEARCH_MAX)):
        if other["parent_run_id"] == run["run_id"]:
            again = other["run_id"]
            journal = cases.run(again)["journal"]
            by = f" by {journal[0]['actor']}" if journal else ""
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
@click.option("--ordering-key", metavar="TEXT", help="Runs with the same key run one at a time.")
@click.option("--key", metavar="TEXT", help="Idempotency key; repeating it returns the same run.")
@click.pass_obj
def submit(app: App, /, **given: Any) -> None:
    """Submit one run and print its id; the run is stored durably before the id is printed."""
    parameters = {**(given["parameters"] or {}), **parse_pairs(given["param"], "param")}
    with app.use_cases() as cases:
        at = _at(cases, given["at"])
        wanted = {
            "pipeline_template": given["pipeline"],
            "processor": given["processor"],
            "partition": given["partition"],
            "parameters": parameters or None,
            "execution_priority": given["priority"],
            "scheduled_time": None if at is None else iso(at),
            "ordering_key": given["ordering_key"],
        }
        run = cases.submit(given["customer"], wanted, given["key"])
    app.emit(run, lambda: click.echo(run["run_id"]))
    app.hint(f"Submitted {given['pipeline']} for {given['customer']}. "
            f"Follow it: penstock runs show {run['run_id']}")  # fmt: skip


def _at(cases: UseCases, text: str | None) -> int | None:
    if text is None:
        return None
    if "T" not in text.upper():
        return cases.now() + parse_duration(text, "at")
    return parse_when(text, "at", 0)


@runs.command("cancel")
@click.argument("run_id", type=RUN)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.pass_obj
def cancel(app: App, run_id: str, reason: str) -> None:
    """Cancel a run: immediately if it is pending, at its next heartbeat if it is running."""
    with app.use_cases() as cases:
        outcome = cases.cancel(run_id, reason)
    words = {
        "cancelled": "is cancelled",
        "asked": "is running; its worker will stop it at the next heartbeat",
    }
    app.emit({"run_id": run_id, "outcome": outcome},
             lambda: click.echo(f"{run_id} {words[outcome]}."))  # fmt: skip


@runs.command("retry")
@click.argument("run_ids", type=RUN, nargs=-1, required=True)
@click.pass_obj
def retry(app: App, run_ids: tuple[str, ...]) -> None:
    """Run finished runs again, now; an open dead letter of the run is closed as replayed."""
    with app.use_cases() as cases:
        done = [{"run_id": run_id, "new_run_id": cases.retry(run_id)} for run_id in run_ids]

    def print_text() -> None:
        for one in done:
            click.echo(f"{one['run_id']} runs again as {one['new_run_id']}.")

    app.emit({"retried": done}, print_text)
