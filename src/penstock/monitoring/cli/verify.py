"""`penstock verify` and `penstock seals`: prove that nothing was lost, repeated or changed."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import click

from penstock.assembly.audit_sink import verify_sink
from penstock.assembly.heads_file import HeadsFile
from penstock.cli import output
from penstock.cli.app import App, Command, Group
from penstock.cli.rows import collect
from penstock.client import UseCaseGroups
from penstock.core import json_profile
from penstock.core.errors import InvalidInput
from penstock.core.records.record import to_json_value
from penstock.monitoring.client.views import HEADS_MAX
from penstock.monitoring.verify.records import PublishedHead, VerificationProblem

BLOCKS_MAX = 1_000_000


@click.command("verify", cls=Command)
@click.option(
    "--heads",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Compare with the heads in this file, as `penstock seals publish` writes it.",
)
@click.option("--sink", is_flag=True,
              help="Compare the audit sink with the journal and the database.")  # fmt: skip
@click.pass_obj
def verify(app: App, heads: Path | None, sink: bool) -> None:
    """Prove from the journal and the audit chains that nothing was lost, repeated or changed.

    Recomputes every hash, and compares the journal with history, the queue, flows, dead letters and
    deliveries. With --sink, reads the whole audit sink instead. Exits with 1 if there is a problem.
    """
    if sink:
        _verify_sink(app)
        return
    published = {} if heads is None else _read_heads(heads)
    with app.connect() as client:
        found = client.views.verify()
        changed = _changed_heads(client, published)
    problems = [*changed, *found.problems]
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


def _verify_sink(app: App) -> None:
    """Compare the audit sink with the database; exit with 1 if there is a problem."""
    settings = app.database_settings()
    with app.client(settings) as client:
        found = verify_sink(client.store, settings)

    def print_text() -> None:
        output.print_table(
            ("LOG", "BATCHES", "ROWS", "ALSO IN THE DATABASE", "SEALED BLOCKS"),
            [
                (
                    one.relation,
                    one.batches,
                    f"{one.rows:,}",
                    f"{one.compared:,}",
                    one.sealed_blocks or "",
                )
                for one in found.logs
            ],
        )
        for one in found.problems:
            name = output.escape_control(f"{one.subject}: {one.text}")
            click.echo(f"{click.style('FAIL', fg='red')}  {one.kind:<16}  {name}")
        if found.problem_count > len(found.problems):
            click.echo(f"      and {found.problem_count - len(found.problems):,} more")
        if found.is_intact:
            click.echo("Intact: the sink has every shipped row once, as the database sealed it.")

    app.emit(found, print_text)
    if not found.is_intact:
        raise click.exceptions.Exit(1)


@click.group(cls=Group)
def seals() -> None:
    """List and publish the sealed blocks of the journal."""


@seals.command("list")
@click.option("--limit", type=click.IntRange(1, BLOCKS_MAX), default=BLOCKS_MAX,
              help="Maximum number of blocks; all by default.")  # fmt: skip
@click.option("--sort", type=click.Choice(("oldest", "newest")), default="oldest",
              show_default=True, help="Oldest or newest first.")  # fmt: skip
@click.pass_obj
def list_(app: App, limit: int, sort: Literal["oldest", "newest"]) -> None:
    """List the sealed blocks.

    Keep the heads outside the database: `penstock verify --heads` compares them later.
    """
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.views.seals(sort=sort, limit=n, cursor=cursor), limit
        )

    def print_text() -> None:
        if not page.items:
            app.hint("No block is sealed yet: the sealer of `penstock up` seals the journal.")
        for one in page.items:
            when = output.format_time(one.sealed_at)
            click.echo(f"{one.block:>8}  {one.entries:>8,}  {when}  {one.head}")
        app.hint_more(page)

    app.emit(page, print_text)


@seals.command("publish")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def publish(app: App, file: Path) -> None:
    """Append the heads of new blocks to FILE, one JSON record per line.

    A file that does not exist is created. `penstock verify --heads FILE` compares it later.
    """
    heads = HeadsFile(file)
    last = heads.last_block()
    with app.connect() as client:
        page = collect(lambda n, cursor: client.views.seals(limit=n, cursor=cursor), BLOCKS_MAX)
    count = heads.append(one for one in page.items if one.block > last)
    record = {"file": str(file), "published": count, "blocks": len(page.items)}
    app.emit(record, lambda: click.echo(f"{output.plural(count, 'head')} appended to {file}"))


def _changed_heads(client: UseCaseGroups, published: dict[int, str]) -> list[VerificationProblem]:
    """Compare published heads, in parts."""
    heads = [PublishedHead(block=block, head=published[block]) for block in sorted(published)]
    return [
        problem
        for start in range(0, len(heads), HEADS_MAX)
        for problem in client.views.compare_heads(heads[start : start + HEADS_MAX]).problems
    ]


def _read_heads(path: Path) -> dict[int, str]:
    """Return the heads in a file, by block: a list, or one head or pushed message per line."""
    expected = "heads, as `penstock seals publish` or `penstock seals list --json` writes them"
    heads: dict[int, str] = {}
    try:
        for one in _head_records(path.read_bytes()):
            block, head = int(one["block"]), str(one["head"])
            if heads.setdefault(block, head) != head:
                raise ValueError(f"two different heads for block {block}")
    except (InvalidInput, AttributeError, TypeError, KeyError, ValueError, OSError) as error:
        fix = f"{error}." if isinstance(error, ValueError) else None
        raise InvalidInput("--heads", expected, str(path), fix) from None
    return heads


def _head_records(text: bytes) -> Iterator[dict[str, Any]]:
    try:
        listed = json_profile.parse_json(text)
    except InvalidInput:
        records = [json_profile.parse_json(line) for line in text.splitlines() if line.strip()]
    else:
        records = listed.get("items", [listed])
    for one in records:
        # The body of a push request has the head as the data of its message.
        pushed = one.get("message")
        yield json_profile.parse_json(b64decode(pushed["data"])) if pushed else one
