"""`penstock runs`: list, show, submit, cancel, retry, and the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli import shapes
from penstock.cli.app import App, Group
from penstock.cli.given import JSON, RUN, moment, pairs, pipeline_number
from penstock.core.clock import iso, parse_duration
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.states import RunState

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.runs import RunDetail
    from penstock.core.model import Run

LIMIT_MAX = 10_000
LOOK = 1000
LIMIT = click.IntRange(1, LIMIT_MAX)
STATE = click.Choice([state.value for state in RunState], case_sensitive=False)


@click.group(cls=Group)
def runs() -> None:
    """List, show, submit, cancel and retry runs; dead letters."""


@runs.command("list")
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--pipeline", metavar="NAME", help="Only of this pipeline.")
@click.option("--state", type=STATE, metavar="STATE", help=f"One of {', '.join(RunState)}.")
@click.option("--since", metavar="WHEN", help="Slot at or after: ISO time, or 2h, 3d ago.")
@click.option("--until", metavar="WHEN", help="Slot before: ISO time, or 2h, 3d ago.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=RUN, metavar="RUN", help="Continue after this run (with --state).")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List runs: live ones first, newest first."""
    if given["before"] is not None and given["state"] is None:
        raise InvalidInput("before", "to be used together with --state", "no --state")
    with app.client() as client:
        found, now = _page(client, given)
    record = {"runs": [shapes.run_record(run) for run in found]}
    app.emit(record, lambda: _print_runs(app, found, now, given))


def _page(client: Client, given: dict[str, Any]) -> tuple[list[Run], int]:
    # The store's filter record; loaded with the client, not with `--help`.
    from penstock.assembly import RunFilter

    now = client.store.read(lambda tx: tx.now())
    window: dict[str, int] = {}
    for name, field in (("slot_from", "since"), ("slot_to", "until")):
        at = moment(given[field], field, now)
        if at is not None:
            window[name] = at
    if given["before"] is not None:
        window |= {"before": given["before"], "slot_before": client.runs.get(given["before"]).slot}
    wanted = RunFilter(
        pipeline=pipeline_number(client, given["pipeline"]),
        state=given["state"],
        limit=given["limit"],
        **window,
    )
    return client.runs.page(wanted, given["customer"]), now


def _print_runs(app: App, found: list[Run], now: int, given: dict[str, Any]) -> None:
    if not found:
        narrowed = [k for k in ("customer", "pipeline", "state", "since", "until") if given[k]]
        app.say("No runs match." if narrowed else "No runs yet.")
        app.say(
            "Submit one: penstock runs submit PIPELINE   ·   or schedule: penstock configs create"
        )
        return
    kinds = {(run.pipeline, run.processor) for run in found}
    names = [pipeline for pipeline, _ in kinds]
    several = {name for name in names if names.count(name) > 1}
    shapes.table(
        ("RUN", "STATE", "CUSTOMER", "PIPELINE", "PROCESSOR", "TRY", "SLOT", "TOOK", "ERROR"),
        [
            (
                encode("run", run.run_id), shapes.run_state(run), run.customer_id, run.pipeline,
                run.processor if run.pipeline in several else None,
                run.attempt if run.attempt > 1 else None, shapes.brief(run.slot, now),
                _took(run, now),
                run.error_type,
            )
            for run in found
        ],
    )  # fmt: skip
    if len(found) == given["limit"]:
        last = encode("run", found[-1].run_id)
        more = f"--before {last}" if given["state"] else f"--limit {given['limit'] * 2}"
        app.say(f"{len(found)} shown, there may be more: add {more}")


def _took(run: Run, now: int) -> str:
    if run.started_at is None:
        return "-"
    return shapes.span((run.finished_at or now) - run.started_at)


@runs.command("show")
@click.argument("run_id", type=RUN)
@click.pass_obj
def show(app: App, run_id: int) -> None:
    """Show one run: its attempts, progress and everything that happened to it."""
    with app.client() as client:
        detail = client.runs.detail(run_id)
        hints = _hints(client, detail.run)
        now = client.store.read(lambda tx: tx.now())
    record = shapes.run_record(detail.run) | {
        "progress": _progress(detail),
        "attempts": [shapes.run_record(run) for run in detail.attempts],
        "journal": [
            {
                "at": iso(row.at), "action": row.action, "actor": row.actor, "from": row.from_state,
                "to": row.to_state, "why": row.why,
            }
            for row in detail.journal
        ],
    }  # fmt: skip
    app.emit(record, lambda: _print_detail(detail, hints, now))


def _progress(detail: RunDetail) -> dict[str, Any] | None:
    if detail.progress is None:
        return None
    times = ("last_heartbeat_at", "estimated_completion_at")
    return {
        name: shapes.iso_or_none(value) if name in times else value
        for name, value in detail.progress.items()
    }


def _print_detail(detail: RunDetail, hints: list[str], now: int) -> None:
    run = detail.run
    run_id = encode("run", run.run_id)
    click.echo(f"{run_id}  {click.style(shapes.run_state(run), bold=True)}")
    shapes.facts(
        [
            ("customer", run.customer_id),
            ("pipeline", f"{run.pipeline}/{run.phase}/{run.processor}"),
            ("config", encode("cfg", run.config_id) if run.config_id else None),
            ("partition", run.partition),
            ("slot", shapes.when(run.slot, now)),
            ("due", shapes.when(run.scheduled_time, now)),
            ("attempt", run.attempt),
            ("priority", run.priority),
            ("started", shapes.when(run.started_at, now)),
            ("finished", shapes.when(run.finished_at, now)),
            ("took", _took(run, now)),
            ("held by", run.claimed_by),
            ("started in time", {True: "yes", False: "no (SLA breach)"}.get(run.sla_met or False)
             if run.sla_met is not None else None),
            ("records", run.records),
            ("parameters", run.parameters),
            ("result", run.result),
            ("error", f"{run.error_type}: {shapes.error_message(run.error_details)}"
             if run.error_type else None),
            ("source", run.trigger_source),
        ]
    )  # fmt: skip
    if detail.progress is not None:
        told = detail.progress
        percent = "" if told["percent"] is None else f"{told['percent']:.0f} % "
        click.echo(f"  progress  {percent}{told['stage'] or ''}")
    if detail.attempts:
        click.echo("Other attempts")
        for other in detail.attempts:
            why = f"  {other.error_type}" if other.error_type else ""
            click.echo(f"  {encode('run', other.run_id)}  #{other.attempt}  {other.state}{why}")
    click.echo("What happened")
    for row in detail.journal:
        edge = f"{row.from_state} → {row.to_state}" if row.from_state else row.to_state or ""
        why = f"  ({row.why})" if row.why else ""
        click.echo(f"  {shapes.when(row.at)}  {row.action} by {row.actor}  {edge}{why}")
    for hint in hints:
        click.echo(hint)


def _hints(client: Client, run: Run) -> list[str]:
    """What can be done about a run, or what was done already."""
    run_id = encode("run", run.run_id)
    if run.finished_at is None:
        return [f"Stop it: penstock runs cancel {run_id}"]
    if not run.is_dead:
        return []
    found = client.runs.dead_letters(status=None, customer=run.customer_id, limit=LOOK)
    status = next((row.status for row in found if row.subject == run.run_id), None)
    if status == "open":
        return [f"Try again: penstock runs retry {run_id}   ·   "
                f'give up: penstock runs discard {run_id} --reason "…"']  # fmt: skip
    if status == "replayed":
        return [_replayed(client, run)]
    return [] if status is None else [f"Its dead letter was {status}."]


def _replayed(client: Client, run: Run) -> str:
    """As which run, and by whom, a dead run was tried again."""
    # The store's filter record; loaded with the client.
    from penstock.assembly import RunFilter

    for other in client.runs.page(RunFilter(limit=LOOK), run.customer_id):
        if other.parent_run_id == run.run_id:
            journal = client.runs.detail(other.run_id).journal
            by = f" by {journal[0].actor}" if journal else ""
            again = encode("run", other.run_id)
            return f"Replayed as {again}{by}: penstock runs show {again}"
    return "It was replayed."


@runs.command("submit")
@click.argument("pipeline")
@click.option("--customer", metavar="ID", default="default", show_default=True)
@click.option("--processor", metavar="NAME", help="Which one, when the pipeline has several.")
@click.option("--partition", metavar="TEXT", help="The slice of data, usually a date.")
@click.option("--param", "param", multiple=True, metavar="KEY=VALUE", help="One parameter.")
@click.option("--parameters", type=JSON, metavar="JSON", help="All parameters, or @file.")
@click.option("--priority", type=int, default=5, show_default=True, help="1 to 10; 10 first.")
@click.option("--at", metavar="TIME", help="Not before this ISO time, or after a duration (10m).")
@click.option("--ordering-key", metavar="TEXT", help="Runs with one key go one after another.")
@click.option("--key", metavar="TEXT", help="Idempotency key: repeating it gives the same run.")
@click.pass_obj
def submit(app: App, /, **given: Any) -> None:
    """Submit one run; it is on disk when this returns."""
    # The use case's record; loaded with the client.
    from penstock.client.runs import Submission

    parameters = {**(given["parameters"] or {}), **pairs(given["param"], "param")}
    with app.client() as client:
        wanted = Submission(
            pipeline=given["pipeline"],
            customer=given["customer"],
            processor=given["processor"],
            partition=given["partition"],
            parameters=parameters or None,
            priority=given["priority"],
            at=_at(client, given["at"]),
            ordering_key=given["ordering_key"],
        )
        run_id = client.runs.submit(wanted, key=given["key"])
        run = client.runs.get(run_id)
    public = encode("run", run_id)
    app.emit(shapes.run_record(run), lambda: click.echo(public))
    app.say(f"Submitted {given['pipeline']} for {given['customer']}. "
            f"Follow it: penstock runs show {public}")  # fmt: skip


def _at(client: Client, text: str | None) -> int | None:
    if text is None:
        return None
    now = client.store.read(lambda tx: tx.now())
    if "T" not in text.upper():
        return now + parse_duration(text, "at")
    return moment(text, "at", now)


@runs.command("cancel")
@click.argument("run_id", type=RUN)
@click.option("--reason", default="", metavar="TEXT", help="Why; written down.")
@click.pass_obj
def cancel(app: App, run_id: int, reason: str) -> None:
    """Cancel a run: at once when it waits, cooperatively when it runs."""
    with app.client() as client:
        outcome = client.runs.cancel(run_id, reason=reason)
    words = {
        "cancelled": "is cancelled",
        "asked": "runs; its worker was asked to stop and will at its next heartbeat",
    }
    public = encode("run", run_id)
    app.emit({"run_id": public, "outcome": outcome},
             lambda: click.echo(f"{public} {words[outcome]}."))  # fmt: skip


@runs.command("retry")
@click.argument("run_ids", type=RUN, nargs=-1, required=True)
@click.pass_obj
def retry(app: App, run_ids: tuple[int, ...]) -> None:
    """Run ended runs again, now; an open dead letter is closed as replayed."""
    with app.client() as client:
        done = [(run_id, client.runs.retry(run_id)) for run_id in run_ids]
    record = {"retried": [{"run_id": encode("run", old), "new_run_id": encode("run", new)}
                          for old, new in done]}  # fmt: skip

    def people() -> None:
        for old, new in done:
            click.echo(f"{encode('run', old)} runs again as {encode('run', new)}.")

    app.emit(record, people)


@runs.command("dead")
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--status", type=click.Choice(["open", "replayed", "discarded", "all"]),
              default="open", show_default=True)  # fmt: skip
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.pass_obj
def dead(app: App, customer: str | None, status: str, limit: int) -> None:
    """List dead letters: runs that used up their attempts or cannot succeed."""
    with app.client() as client:
        found = client.runs.dead_letters(
            status=None if status == "all" else status, customer=customer, limit=limit
        )
        now = client.store.read(lambda tx: tx.now())
    record = {
        "dead_letters": [
            {
                "run_id": encode("run", row.subject), "customer_id": row.customer_id,
                "pipeline": row.pipeline, "processor": row.processor,
                "config_id": encode("cfg", row.config_id) if row.config_id else None,
                "error_type": row.error_type, "message": shapes.error_message(row.error_details),
                "attempts": row.attempts, "died_at": iso(row.died_at), "status": row.status,
            }
            for row in found
        ]
    }  # fmt: skip

    def people() -> None:
        if not found:
            app.say("No dead letters: nothing waits for a person.")
            return
        shapes.table(
            ("RUN", "DIED", "CUSTOMER", "PIPELINE", "TRIES", "ERROR", "MESSAGE", "STATUS"),
            [
                (
                    encode("run", row.subject), shapes.brief(row.died_at, now), row.customer_id,
                    row.pipeline, row.attempts, row.error_type,
                    shapes.first_line(shapes.error_message(row.error_details), 60),
                    None if status == "open" else row.status,
                )
                for row in found
            ],
        )  # fmt: skip
        if len(found) == limit:
            app.say(f"{len(found)} shown, there may be more: add --limit {limit * 2}")
        app.say('Then: penstock runs retry RUN   ·   penstock runs discard RUN --reason "…"')

    app.emit(record, people)


@runs.command("discard")
@click.argument("run_id", type=RUN)
@click.option("--reason", required=True, metavar="TEXT", help="Why nobody will run it again.")
@click.pass_obj
def discard(app: App, run_id: int, reason: str) -> None:
    """Close a dead letter without running it again."""
    with app.client() as client:
        client.runs.discard(run_id, reason)
    public = encode("run", run_id)
    app.emit({"run_id": public, "outcome": "discarded"},
             lambda: click.echo(f"{public} is discarded."))  # fmt: skip
