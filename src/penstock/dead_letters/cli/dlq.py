"""`penstock dlq`: list, replay and discard runs and messages that are no longer retried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import JSON, confirm, parse_pairs, parse_when, read_text
from penstock.cli.rows import collect
from penstock.client import UseCaseGroups
from penstock.core.clock import to_datetime
from penstock.core.errors import Conflict, InvalidInput
from penstock.core.records.record import Page
from penstock.dead_letters.cli.output import origin, print_dead_letter, replayable
from penstock.dead_letters.records import (
    DeadLetter,
    DeadLetterEdit,
    DiscardRequest,
    RefusedReplay,
    ReplayedDeadLetter,
    ReplayRequest,
    ReplayStep,
)

LIMIT = click.IntRange(1, 10_000)
STEP = 100
DISCARDED = 500
"""Numbers of dead letters of one request to replay, and to discard."""
WORDS = 60
REASONS = 20


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select dead letters."""
    options = (
        click.option(
            "--kind", type=click.Choice(["run", "delivery"]), help="Only runs, or only deliveries."
        ),
        click.option("--customer", metavar="ID", help="Only dead letters of this customer."),
        click.option("--subscription", metavar="NAME", help="Only messages of this subscription."),
        click.option("--topic", metavar="NAME", help="Only messages of this topic."),
        click.option("--pipeline", metavar="NAME", help="Only runs of this pipeline."),
        click.option("--processor", metavar="NAME", help="Only runs of this processor."),
        click.option("--partition", metavar="TEXT", help="Only runs of this partition."),
        click.option(
            "--correlation",
            "correlation_id",
            metavar="ID",
            help="Only dead letters with this correlation id.",
        ),
        click.option(
            "--error", "error_type", metavar="TYPE", help="Only dead letters with this error type."
        ),
        click.option("--group", metavar="GROUP", help="Only this group; see dlq groups --json."),
        click.option(
            "--since",
            metavar="WHEN",
            help="Only failures at or after this ISO time or age (2h, 3d).",
        ),
        click.option(
            "--until", metavar="WHEN", help="Only failures before this ISO time or age (2h, 3d)."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


STATUS = click.option(
    "--status", type=click.Choice(["open", "replayed", "discarded", "all"]), default="open",
    show_default=True, help="Filter by status.",
)  # fmt: skip


@click.group(cls=Group)
def dlq() -> None:
    """List, replay and discard dead letters of runs and messages."""


@dlq.command("list")
@STATUS
@filter_options
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, limit: int, **given: Any) -> None:
    """List dead letters, newest first."""
    with app.connect() as client:
        page = _find(client, _asked(client, given), limit)
        now = client.now()
    app.emit_page(
        page,
        {
            "DEAD LETTER": lambda one: one.dead_letter_id,
            "FAILED": lambda one: output.format_time_short(one.died_at, now),
            "CUSTOMER": lambda one: one.customer,
            "ORIGIN": origin,
            "ATTEMPTS": lambda one: one.attempts,
            "ERROR": lambda one: output.error_text(one.error_type, one.error_class),
            "MESSAGE": lambda one: output.first_line(
                output.error_message(one.error_details), WORDS
            ),
            "STATUS": lambda one: None if given["status"] == "open" else one.status,
        },
        empty="No dead letters.",
    )
    if page.items:
        app.hint('Next: penstock dlq show ID  ·  dlq replay ID  ·  dlq discard ID --reason "…"')


@dlq.command("groups")
@STATUS
@filter_options
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def groups(app: App, /, limit: int, **given: Any) -> None:
    """Count dead letters by origin and error type."""
    with app.connect() as client:
        found = client.dead_letters.groups(**_asked(client, given), limit=limit)
        now = client.now()
    app.emit_page(
        Page(items=found),
        {
            "COUNT": lambda one: one.count,
            "ORIGIN": origin,
            "ERROR": lambda one: one.error_type,
            "FIRST": lambda one: output.format_time_short(one.first_at, now),
            "LAST": lambda one: output.format_time_short(one.last_at, now),
            "REPLAYABLE": replayable,
            "LATEST": lambda one: one.latest,
        },
        empty="No dead letters.",
    )
    for group in found[:1]:
        app.hint(f"Next: penstock dlq show ID  ·  penstock dlq list --group {group.group}")
    refused = [(group, one) for group in found for one in group.refused_reasons]
    for group, one in refused[:REASONS]:
        app.hint(f"{origin(group)}, {group.error_type}: {one.count} refused: {one.why}.")


@dlq.command("show")
@click.argument("dead_letter_id", metavar="ID")
@click.pass_obj
def show(app: App, dead_letter_id: str) -> None:
    """Show one dead letter in full; ID is its id or the id of the failed run."""
    with app.connect() as client:
        detail = client.dead_letters.get(dead_letter_id)
        now = client.now()
    app.emit(detail, lambda: print_dead_letter(detail, now))


@dlq.command("replay")
@click.argument("dead_letter_ids", nargs=-1, metavar="[ID]...")
@filter_options
@click.option("--all", "everything", is_flag=True, help="Replay all open dead letters.")
@click.option("--dry-run", is_flag=True, help="Show what would be replayed; change nothing.")
@click.option("--rate", type=click.FloatRange(0, 10_000, min_open=True), metavar="N",
              help="Replays per second; the rest are scheduled for later.")  # fmt: skip
@click.option("--limit", type=LIMIT, metavar="N", help="Maximum number of dead letters to replay.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="K=V",
    help="Set a parameter of the run before the replay.",
)
@click.option(
    "--data", metavar="TEXT|@FILE", help="Replace the message's content before the replay."
)
@click.option("--attributes", type=JSON, help="Replace the message's attributes before the replay.")
@click.pass_obj
def replay(app: App, /, dead_letter_ids: tuple[str, ...], **given: Any) -> None:
    r"""Replay dead letters by ID, or all open ones that match the options.

    A single dead letter can be edited with --param, --data or --attributes.

    \b
    penstock dlq replay dl_5m7t0c2d
    penstock dlq replay --subscription rosters --error TIMEOUT --dry-run
    penstock dlq replay --subscription rosters --rate 20 --yes
    penstock dlq replay dl_5m7t0c2d --data @fixed.json
    """
    edit = _edit(given)
    with app.connect() as client:
        asked = _meant(client, dead_letter_ids, given)
        if asked is None:
            if edit is not None and len(dead_letter_ids) > 1:
                raise InvalidInput("ID", "one id when editing", f"{len(dead_letter_ids)} ids")
            _replay_these(app, client, dead_letter_ids, edit, is_dry=given["dry_run"])
            return
        if edit is not None:
            raise InvalidInput("ID", "the id of the dead letter to edit", "a filter")
        _replay_matching(app, client, asked, given)


@dlq.command("discard")
@click.argument("dead_letter_ids", nargs=-1, metavar="[ID]...")
@filter_options
@click.option("--all", "everything", is_flag=True, help="Discard all open dead letters.")
@click.option("--dry-run", is_flag=True, help="Show what would be discarded; change nothing.")
@click.option("--limit", type=LIMIT, default=1_000, show_default=True, metavar="N",
              help="Maximum number of dead letters to discard.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--reason", required=True, metavar="TEXT", help="Reason, recorded in the journal.")
@click.pass_obj
def discard(app: App, /, dead_letter_ids: tuple[str, ...], reason: str, **given: Any) -> None:
    r"""Close dead letters without a replay: by ID, or all open ones that match the options.

    \b
    penstock dlq discard dl_5m7t0c2d --reason "a test"
    penstock dlq discard --subscription rosters --error POISON --dry-run
    """
    with app.connect() as client:
        asked = _meant(client, dead_letter_ids, given)
        if asked is not None:
            _discard_matching(app, client, DiscardRequest(**asked, reason=reason), given)
            return
        chosen = list(dead_letter_ids)
        if given["dry_run"]:
            _would_discard(app, [one.dead_letter_id for one in _open(client, dead_letter_ids)])
            return
        for dead_letter_id in chosen:
            client.dead_letters.discard(dead_letter_id, reason)
    _discarded(app, chosen)


def _discard_matching(
    app: App, client: UseCaseGroups, request: DiscardRequest, given: Mapping[str, Any]
) -> None:
    """Count the matches with a dry run, ask for confirmation, then discard in steps."""
    discard, limit = client.dead_letters.discard_matching, given["limit"]
    dry = given["dry_run"]
    if not dry and not given["yes"] and not app.is_json:
        would = discard(replace(request, limit=1, is_dry_run=True))
        many = min(limit, would.matched)
        if many > 1:
            confirm(f"Discard {output.plural(many, 'dead letter')}?")
    chosen: list[str] = []
    while True:
        step = discard(replace(request, limit=min(DISCARDED, limit), is_dry_run=dry))
        chosen += step.discarded
        limit -= DISCARDED
        if step.next_before is None or limit <= 0:
            break
        request = replace(request, before=step.next_before)
    if dry:
        _would_discard(app, chosen)
        return
    _discarded(app, chosen, step.left)


def _would_discard(app: App, chosen: list[str]) -> None:
    text = f"Would discard {output.plural(len(chosen), 'dead letter')}.{_none(chosen)}"
    app.emit({"dry_run": True, "would_discard": chosen}, lambda: click.echo(text))


def _discarded(app: App, chosen: list[str], left: int = 0) -> None:
    def print_text() -> None:
        for dead_letter_id in chosen:
            click.echo(f"{dead_letter_id} is discarded.")
        if not chosen:
            click.echo(f"Nothing discarded.{_none(chosen)}")
        elif left:
            app.hint(f"{len(chosen)} discarded, {left} left: run the command again.")

    app.emit({"discarded": chosen}, print_text)


def _find(client: UseCaseGroups, asked: Mapping[str, Any], limit: int) -> Page[DeadLetter]:
    return collect(
        lambda n, cursor: client.dead_letters.list(**asked, limit=n, cursor=cursor), limit
    )


def _meant(
    client: UseCaseGroups, dead_letter_ids: tuple[str, ...], given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the filters, or None if ids were given; exactly one of the two must be given."""
    asked = _asked(client, given)
    if dead_letter_ids and (asked or given["everything"]):
        raise InvalidInput("ID", "either ids or a filter", dead_letter_ids[0])
    if not dead_letter_ids and not asked and not given["everything"]:
        fix = "Pass ids, a filter such as --error TYPE, or --all."
        raise InvalidInput("ID", "ids, a filter or --all", None, fix)
    return None if dead_letter_ids else asked


def _open(client: UseCaseGroups, ids: tuple[str, ...]) -> list[DeadLetter]:
    """Return the dead letters with these ids; raise Conflict if one of them is not open."""
    found = [client.dead_letters.get(dead_letter_id).dead_letter for dead_letter_id in ids]
    for row in found:
        if row.status != "open":
            raise Conflict(f"{row.dead_letter_id} is not open: it was {row.status}.")
    return found


def _none(chosen: Sequence[object]) -> str:
    """Return the hint for an empty selection; empty if something was chosen."""
    return "" if chosen else " No open dead letter matches; see penstock dlq groups."


def _asked(client: UseCaseGroups, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters that were given; ages are relative to the database's clock."""
    now = client.now() if given["since"] or given["until"] else 0
    names = ("status", "kind", "customer", "subscription", "topic", "pipeline", "processor",
             "partition", "correlation_id", "error_type", "group")  # fmt: skip
    asked = {name: given[name] for name in names if given.get(name) is not None}
    for name in ("since", "until"):
        at = parse_when(given[name], name, now)
        if at is not None:
            asked[name] = to_datetime(at)
    return asked


def _edit(given: Mapping[str, Any]) -> DeadLetterEdit | None:
    data = given["data"]
    if data is not None:
        data = (read_text(Path(data[1:]), "data") if data.startswith("@") else data).encode()
    parameters = parse_pairs(given["parameters"], "param") if given["parameters"] else None
    edit = DeadLetterEdit(parameters=parameters, data=data, attributes=given["attributes"])
    return None if edit == DeadLetterEdit() else edit


def _replay_these(
    app: App,
    client: UseCaseGroups,
    ids: tuple[str, ...],
    edit: DeadLetterEdit | None,
    *,
    is_dry: bool,
) -> None:
    if is_dry:
        found = _open(client, ids)
        for row in found:
            _check_edit(edit, row.kind)
        open_ones = [row.dead_letter_id for row in found]
        text = f"Would replay {output.plural(len(open_ones), 'dead letter')}."
        app.emit({"dry_run": True, "would_replay": open_ones}, lambda: click.echo(text))
        return
    done = [client.dead_letters.replay(dead_letter_id, edit) for dead_letter_id in ids]

    def print_text() -> None:
        for one in done:
            new_id = one.replayed_as
            name = new_id if new_id.startswith("run_") else f"message {new_id}, next generation"
            click.echo(f"{one.dead_letter_id} is replayed as {name}.")

    app.emit({"replayed": done}, print_text)


def _check_edit(edit: DeadLetterEdit | None, kind: str) -> None:
    """Raise InvalidInput if the edit does not apply to this kind of dead letter."""
    if edit is None:
        return
    if kind == "delivery" and edit.parameters is not None:
        expected = "--data or --attributes, because the dead letter is a message"
        raise InvalidInput("param", expected, edit.parameters)
    if kind == "run" and edit.parameters is None:
        expected = "--param, because the dead letter is a run"
        raise InvalidInput("data", expected, "an edited message")


def _replay_matching(
    app: App, client: UseCaseGroups, asked: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Count the matches with a dry run, ask for confirmation, then replay in steps of STEP."""
    limit = given["limit"]
    replay = client.dead_letters.replay_matching
    if given["dry_run"]:
        would = _dry_run(client, asked, limit)
        app.emit(would, lambda: _would(would))
        return
    would = replay(ReplayRequest(**asked, limit=1, is_dry_run=True))
    many = would.matched if limit is None else min(limit, would.matched)
    if not many:
        text = f"Nothing replayed.{_none(())}"
        app.emit({"replayed": [], "refused": []}, lambda: click.echo(text))
        return
    if many > 1 and not given["yes"] and not app.is_json:
        confirm(f"Replay {output.plural(many, 'dead letter')}?")
    done: list[ReplayedDeadLetter] = []
    refused: list[RefusedReplay] = []
    request = ReplayRequest(**asked, rate=given["rate"])
    with click.progressbar(length=many, label="Replaying", hidden=app.is_json) as bar:
        # The count has a maximum; without a limit the replay goes on to the last match.
        while limit is None or limit > len(done) + len(refused):
            left = STEP if limit is None else limit - len(done) - len(refused)
            step = replay(replace(request, limit=min(STEP, left)))
            done += step.replayed
            refused += step.refused
            bar.update(len(step.replayed) + len(step.refused))
            if step.next_before is None:
                break
            request = replace(request, before=step.next_before, start_at=step.next_at)

    def print_text() -> None:
        click.echo(f"{output.plural(len(done), 'dead letter')} replayed, {len(refused)} refused.")
        _print_refused(refused)

    app.emit({"replayed": done, "refused": refused}, print_text)


def _dry_run(client: UseCaseGroups, asked: Mapping[str, Any], limit: int | None) -> ReplayStep:
    """Check every dead letter that the replay would reach, in steps of STEP."""
    request = ReplayRequest(**asked, limit=min(STEP, limit or STEP), is_dry_run=True)
    step = client.dead_letters.replay_matching(request)
    done, refused = list(step.replayed), list(step.refused)
    matched = step.matched
    while step.next_before is not None:
        left = STEP if limit is None else limit - len(done) - len(refused)
        if left <= 0:
            break
        request = replace(request, before=step.next_before, limit=min(STEP, left))
        step = client.dead_letters.replay_matching(request)
        done += step.replayed
        refused += step.refused
    left_over = matched - len(done) - len(refused)
    return replace(step, matched=matched, replayed=done, refused=refused, left=left_over)


def _would(would: ReplayStep) -> None:
    reached = range(len(would.replayed) + len(would.refused))
    click.echo(f"Would replay {output.plural(len(would.replayed), 'dead letter')}.{_none(reached)}")
    _print_refused(would.refused)


def _print_refused(refused: list[RefusedReplay]) -> None:
    for one in refused[:20]:
        click.echo(f"  {one.dead_letter_id}: {one.why}")
    if len(refused) > 20:
        click.echo(f"  and {len(refused) - 20} more")
