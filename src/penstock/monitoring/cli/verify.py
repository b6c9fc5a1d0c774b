"""`penstock verify` and `penstock seals`: prove that nothing was lost, repeated or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command, Group
from penstock.cli.rows import collect
from penstock.client import UseCaseGroups
from penstock.core import json_profile
from penstock.core.errors import InvalidInput
from penstock.core.records.record import to_json_value
from penstock.monitoring.verify.accounts import compare_heads
from penstock.monitoring.verify.records import VerificationProblem

BLOCKS_MAX = 1_000_000


@click.command("verify", cls=Command)
@click.option(
    "--heads",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with published heads, as `penstock seals list --json` writes it; compare them.",
)
@click.pass_obj
def verify(app: App, heads: Path | None) -> None:
    """Prove from the journal and the audit chains that nothing was lost, repeated or changed.

    Recomputes every hash, and compares the journal with history, the queue, flows, dead letters and
    deliveries. Exits with 1 if there is a problem.
    """
    published = {} if heads is None else _read_heads(heads)
    with app.connect() as client:
        found = client.views.verify()
        changed = compare_heads(published, _stored_heads(client)) if published else []
    problems = [
        *(VerificationProblem(kind=p.kind, subject=p.subject, text=p.text) for p in changed),
        *found.problems,
    ]
    count = found.problem_count + len(changed)
    record: dict[str, Any] = {
        **to_json_value(found),
        "is_intact": not count,
        "heads": len(published),
        "problems": [to_json_value(one) for one in problems],
        "problem_count": count,
    }

    def print_text() -> None:
        click.echo(
            f"{output.plural(found.entries, 'journal entry', 'journal entries')} in "
            f"{output.plural(found.blocks, 'sealed block')}"
            + (f" ({found.unsealed:,} not sealed yet)" if found.unsealed else "")
            + f", {output.plural(found.runs, 'ended run')}, "
            f"{output.plural(found.flows, 'flow')}, "
            f"{output.plural(found.audit_entries, 'audit entry', 'audit entries')}"
            + (f", {output.plural(len(published), 'published head')}" if published else "")
        )
        for one in problems:
            name = output.escape_control(f"{one.subject}: {one.text}")
            click.echo(f"{click.style('FAIL', fg='red')}  {one.kind:<20}  {name}")
        if count > len(problems):
            click.echo(f"      and {count - len(problems):,} more")
        if count:
            click.echo(
                f"{output.plural(count, 'problem')}. Keep a copy of this database as evidence; "
                "docs/operations/verify.md says what each kind means."
            )
        else:
            click.echo("Intact: nothing was lost, repeated or changed.")

    app.emit(record, print_text)
    if count:
        raise click.exceptions.Exit(1)


@click.group(cls=Group)
def seals() -> None:
    """List the sealed blocks of the journal."""


@seals.command("list")
@click.option("--limit", type=click.IntRange(1, BLOCKS_MAX), default=BLOCKS_MAX,
              help="Maximum number of blocks; all by default.")  # fmt: skip
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the sealed blocks, oldest first.

    Keep the heads outside the database: `penstock verify --heads` compares them later.
    """
    with app.connect() as client:
        page = collect(lambda n, cursor: client.views.seals(limit=n, cursor=cursor), limit)

    def print_text() -> None:
        if not page.items:
            app.hint("No block is sealed yet: the sealer of `penstock up` seals the journal.")
        for one in page.items:
            when = output.format_time(one.sealed_at)
            click.echo(f"{one.block:>8}  {one.entries:>8,}  {when}  {one.head}")
        app.hint_more(page)

    app.emit(page, print_text)


def _stored_heads(client: UseCaseGroups) -> dict[int, str]:
    page = collect(lambda n, cursor: client.views.seals(limit=n, cursor=cursor), BLOCKS_MAX)
    return {one.block: one.head for one in page.items}


def _read_heads(path: Path) -> dict[int, str]:
    """Return the heads by block of a file that `seals list --json` wrote."""
    expected = "the output of `penstock seals list --json`"
    try:
        listed = json_profile.parse_json(path.read_bytes())
        return {int(one["block"]): str(one["head"]) for one in listed["items"]}
    except (InvalidInput, TypeError, KeyError, ValueError, OSError):
        raise InvalidInput("--heads", expected, str(path)) from None
