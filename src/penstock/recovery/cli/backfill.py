"""`penstock backfill` and `penstock backfills`: process a range of partitions."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command, Group, dry_run_option
from penstock.cli.arguments import BACKFILL, CONFIG, JSON, confirm, parse_pairs
from penstock.cli.rows import collect
from penstock.core.clock import SystemClock
from penstock.recovery.cli.impact import print_impact
from penstock.recovery.fates import BackfillState, PartitionState
from penstock.recovery.records import Backfill, BackfillRequest, BackfillStart

if TYPE_CHECKING:
    from penstock.client import UseCaseGroups

LIMIT = click.IntRange(1, 10_000)
WATCH_SECONDS = 0.5
FAILED_EXIT = 1
STATES = tuple(state.value for state in BackfillState)
PARTITION_STATES = tuple(state.value for state in PartitionState)


class _Backfill(Command):
    """Suggests options for partitions that are passed as arguments."""

    def hint_at_extra(self, extra: Sequence[str]) -> str:
        """Return the options for partitions that were given as arguments."""
        if len(extra) == 2:
            return f"Did you mean --from {shlex.quote(extra[0])} --to {shlex.quote(extra[1])}?"
        listed = " ".join(f"--partition {shlex.quote(one)}" for one in extra)
        return f"Did you mean {listed}?" if extra else ""


@click.command("backfill", cls=_Backfill)
@click.argument("pipeline")
@click.option("--from", "first", metavar="PARTITION", help="First partition of the range.")
@click.option("--to", "last", metavar="PARTITION", help="Last partition of the range, inclusive.")
@click.option("--partition", "partitions", multiple=True, metavar="PARTITION",
              help="A partition, instead of a range; may be repeated.")  # fmt: skip
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--config-id", type=CONFIG, metavar="CFG",
              help="Config that the flows belong to; required if several are active.")  # fmt: skip
@click.option("--mode", metavar="NAME", help="Mode of the flows. Defaults to `backfill`.")
@click.option("--phases", default="", metavar="NAMES",
              help="Comma-separated phases to start with; earlier ones are inherited.")  # fmt: skip
@click.option("--no-downstream", is_flag=True, help="Do not continue with later phases.")
@click.option("--parallelism", type=click.IntRange(1, 1_000), default=4, show_default=True,
              help="Partitions in progress at a time.")  # fmt: skip
@click.option("--order", type=click.Choice(("oldest", "newest")), default="oldest",
              show_default=True, help="Which end of the range to start with.")  # fmt: skip
@click.option("--existing", type=click.Choice(("incomplete", "missing", "all")),
              default="incomplete", show_default=True,
              help="Partitions to process: not completed, never started, or all.")  # fmt: skip
@click.option("--one-pass", is_flag=True, help="Open a single flow for the whole range.")
@click.option("--max-failures", "failures_max", type=click.IntRange(1), metavar="N",
              help="Pause after this many failed partitions.")  # fmt: skip
@click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="Set one parameter.")
@click.option("--parameters", type=JSON, metavar="JSON|@FILE", help="Parameters as one object.")
@click.option("--priority", type=click.IntRange(1, 10), default=3, show_default=True,
              help="Priority of its runs; scheduled work has 5.")  # fmt: skip
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--watch/--no-watch", default=None,
              help="Show a progress bar until it ends; the default in a terminal.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be started; change nothing.")
@click.pass_obj
def backfill(app: App, /, **given: Any) -> None:
    r"""Process a range of partitions in the background, a bounded number at a time.

    Partitions that are complete or in progress are skipped. The scheduler process executes it, so
    it continues when this command ends: `penstock backfills` lists, pauses, resumes and cancels
    backfills.

    Preview the effect first:

    \b
    penstock backfill nba --from 2025-11-01 --to 2025-11-30 --dry-run
    """
    wanted = _wanted(given)
    with app.connect() as client:
        if wanted.is_dry_run or not (given["yes"] or app.is_json):
            seen = client.backfills.start(_wanted({**given, "dry_run": True}))
            if wanted.is_dry_run:
                app.emit(seen, lambda: _print_start(seen))
                return
            print_impact(seen.impact, is_dry_run=False)
            confirm("Start it?")
        made = client.backfills.start(wanted)
        assert made.backfill is not None
        app.emit(made, lambda: _print_start(made))
        is_watched = sys.stdout.isatty() if given["watch"] is None else given["watch"]
        if is_watched and not app.is_json:
            _watch(client, made.backfill)


def _wanted(given: dict[str, Any]) -> BackfillRequest:
    parameters = {**(given["parameters"] or {}), **parse_pairs(given["params"], "param")}
    return BackfillRequest(
        pipeline=given["pipeline"],
        first=given["first"],
        last=given["last"],
        partitions=list(given["partitions"]),
        customer=given["customer"],
        config=given["config_id"],
        mode=given["mode"],
        phases=[part for part in given["phases"].split(",") if part],
        no_downstream=given["no_downstream"],
        parallelism=given["parallelism"],
        order=given["order"],
        existing=given["existing"],
        one_pass=given["one_pass"],
        failures_max=given["failures_max"],
        parameters=parameters or None,
        priority=given["priority"],
        reason=given["reason"],
        is_dry_run=given["dry_run"],
    )


def _print_start(made: BackfillStart) -> None:
    if made.backfill is None:
        print_impact(made.impact, is_dry_run=True)
        for line in made.skipped[:20]:
            click.echo(f"  skips      {output.escape_control(line)}")
        return
    name = made.backfill.backfill_id
    click.echo(f"{name} started. Follow it: penstock backfills show {name}")


@click.group(cls=Group)
def backfills() -> None:
    """List, follow, pause, resume and cancel backfills."""


@backfills.command("list")
@click.option("--customer", metavar="ID", help="Only backfills of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only backfills of this pipeline.")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), metavar="STATE",
              help=f"One of {', '.join(STATES)}.")  # fmt: skip
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List backfills, newest first, with their progress."""
    limit = given.pop("limit")
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.backfills.list(**given, limit=n, cursor=cursor), limit
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "BACKFILL": lambda one: one.backfill_id,
            "STATE": lambda one: one.state,
            "CUSTOMER": lambda one: one.customer,
            "PIPELINE": lambda one: one.pipeline,
            "FROM": lambda one: one.first,
            "TO": lambda one: one.last,
            "DONE": lambda one: f"{one.done}/{one.total}",
            "FAILED": lambda one: one.counts.get(PartitionState.FAILED) or None,
            "ETA": lambda one: output.format_time_short(one.eta_at, now),
            "BY": lambda one: one.opened_by,
        },
        empty="No backfills.\nStart one: penstock backfill PIPELINE --from PARTITION "
        "--to PARTITION --dry-run",
    )


@backfills.command("show")
@click.argument("backfill_id", type=BACKFILL)
@click.option("--watch", is_flag=True, help="Show a progress bar until it has ended.")
@click.pass_obj
def show(app: App, backfill_id: str, watch: bool) -> None:
    """Show one backfill with its progress; with --watch, until it has ended."""
    with app.connect() as client:
        found = client.backfills.get(backfill_id)
        now = client.now()
        if watch and not app.is_json:
            _watch(client, found)
            return
    app.emit(found, lambda: _print_backfill(found, now))


@backfills.command("partitions")
@click.argument("backfill_id", type=BACKFILL)
@click.option("--state", type=click.Choice(PARTITION_STATES, case_sensitive=False), metavar="STATE",
              help=f"One of {', '.join(PARTITION_STATES)}.")  # fmt: skip
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def partitions(app: App, /, backfill_id: str, limit: int, **given: Any) -> None:
    """List the partitions of a backfill in the order in which they start."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.backfills.partitions(
                backfill_id, **given, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "PARTITION": lambda one: one.partition,
            "STATE": lambda one: one.state,
            "FLOW": lambda one: one.flow_id,
            "TRIES": lambda one: one.attempts,
            "STARTED": lambda one: output.format_time_short(one.started_at, now),
            "ENDED": lambda one: output.format_time_short(one.ended_at, now),
            "NOTE": lambda one: output.first_line(one.note),
        },
        empty="No partitions match.",
    )


@backfills.command("pause")
@click.argument("backfill_id", type=BACKFILL)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@dry_run_option
@click.pass_obj
def pause(app: App, backfill_id: str, reason: str) -> None:
    """Start no more partitions of a backfill; those in progress continue."""
    with app.connect() as client:
        done = client.backfills.pause(backfill_id, reason)
    text = f"{backfill_id} paused at {_share(done)}. Continue: penstock backfills resume "
    app.emit(done, lambda: click.echo(text + backfill_id))


@backfills.command("resume")
@click.argument("backfill_id", type=BACKFILL)
@click.option(
    "--failed", "again", is_flag=True, help="Also repeat failed and cancelled partitions."
)
@click.option("--parallelism", type=click.IntRange(1, 1_000), metavar="N",
              help="New number of partitions in progress at a time.")  # fmt: skip
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@dry_run_option
@click.pass_obj
def resume(app: App, backfill_id: str, again: bool, parallelism: int | None, reason: str) -> None:
    """Continue a paused backfill, or repeat the failed partitions of an ended one."""
    with app.connect() as client:
        done = client.backfills.resume(backfill_id, reason, again=again, parallelism=parallelism)
    text = f"{backfill_id} continues at {_share(done)}."
    app.emit(done, lambda: click.echo(text))


@backfills.command("cancel")
@click.argument("backfill_id", type=BACKFILL)
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@click.pass_obj
def cancel(app: App, backfill_id: str, reason: str, yes: bool) -> None:
    """Cancel a backfill and its flows in progress; completed partitions are kept."""
    with app.connect() as client:
        if not (yes or app.is_json or app.is_dry_run):
            now = client.backfills.get(backfill_id)
            confirm(f"Cancel {backfill_id} at {_share(now)}?")
        done = client.backfills.cancel(backfill_id, reason)
    app.emit(done, lambda: click.echo(f"{backfill_id} cancelled at {_share(done)}."))


def _share(one: Backfill) -> str:
    return f"{one.done} of {one.total} partitions"


def _print_backfill(one: Backfill, now: int) -> None:
    click.echo(f"{one.backfill_id}  {click.style(one.state, bold=True)}")
    output.print_facts(
        [
            ("customer", one.customer),
            ("pipeline", one.pipeline),
            ("partitions", f"{one.first} to {one.last}, {one.order} first"),
            ("mode", one.mode),
            ("starts at", ", ".join(one.phases)),
            ("parallelism", one.parallelism),
            ("progress", f"{_share(one)} ({one.progress:.1f} %)"),
            ("states", ", ".join(f"{n} {state}" for state, n in one.counts.items())),
            ("probable end", output.format_time(one.eta_at, now)),
            ("reason", one.reason),
            ("started", output.format_time(one.created_at, now)),
            ("started by", one.opened_by),
            ("ended", output.format_time(one.ended_at, now)),
            ("note", one.note),
            ("correlation", one.correlation_id),
        ]
    )
    click.echo(f"By partition: penstock backfills partitions {one.backfill_id}")


def _watch(client: UseCaseGroups, one: Backfill) -> None:
    """Show a progress bar until a backfill ends; interrupting it does not stop the backfill."""
    # Imported here because importing rich takes 100 ms.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    clock = SystemClock()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[states]}"))  # fmt: skip
    with Progress(*columns, console=output.console()) as bar:
        task = bar.add_task(one.backfill_id, total=one.total, completed=one.done, states="")
        while True:
            states = ", ".join(f"{n} {state}" for state, n in one.counts.items())
            bar.update(task, completed=one.done, states=states)
            if one.ended_at is not None or one.state == BackfillState.PAUSED:
                break
            clock.sleep(WATCH_SECONDS)
            one = client.backfills.get(one.backfill_id)
    click.echo(f"{one.backfill_id} {one.state}: {_share(one)}. {one.note or ''}".rstrip())
    if one.state == BackfillState.FAILED:
        sys.exit(FAILED_EXIT)
