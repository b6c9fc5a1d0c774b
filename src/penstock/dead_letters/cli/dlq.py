"""`penstock dlq`: the inbox of runs and messages that nobody will try again by himself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import JSON, confirm, moment, pairs, read_text
from penstock.cli.backends.protocol import Shape, UseCases
from penstock.cli.backends.protocol_dead_letters import LetterCases, LettersAsked, Step
from penstock.core.errors import Conflict, InvalidInput
from penstock.dead_letters.cli.output import origin, print_letter
from penstock.dead_letters.client.deliveries import Edit

LIMIT = click.IntRange(1, 10_000)
STEP = 100
WORDS = 60


def narrowing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which dead letters are meant."""
    options = (
        click.option("--kind", type=click.Choice(["run", "delivery"]), help="Only this kind."),
        click.option("--customer", metavar="ID", help="Only this customer's."),
        click.option("--subscription", metavar="NAME", help="Only of this subscription."),
        click.option("--topic", metavar="NAME", help="Only of this topic."),
        click.option("--pipeline", metavar="NAME", help="Only of this pipeline."),
        click.option("--processor", metavar="NAME", help="Only of this processor."),
        click.option("--partition", metavar="TEXT", help="Only of this slice of data."),
        click.option("--correlation", "correlation_id", metavar="ID", help="Only of this cause."),
        click.option("--error", "error_type", metavar="TYPE", help="Only with this kind of error."),
        click.option("--since", metavar="WHEN", help="Died at or after: ISO time, or 2h, 3d ago."),
        click.option("--until", metavar="WHEN", help="Died before: ISO time, or 2h, 3d ago."),
    )
    for option in reversed(options):
        command = option(command)
    return command


STATUS = click.option(
    "--status", type=click.Choice(["open", "replayed", "discarded", "all"]), default="open",
    show_default=True, help="Only of this status.",
)  # fmt: skip


@click.group(cls=Group)
def dlq() -> None:
    """Dead letters of runs and messages: look, replay, discard."""


@dlq.command("list")
@STATUS
@narrowing
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.pass_obj
def list_(app: App, /, limit: int, **given: Any) -> None:
    """List dead letters, newest first."""
    with app.use_cases() as cases:
        found = cases.letters.page(_asked(cases, given), limit)
        now = cases.now()

    def people() -> None:
        if not found:
            app.say("No dead letters: nothing waits for a person.")
            return
        output.table(
            ("LETTER", "DIED", "CUSTOMER", "WHAT", "TRIES", "ERROR", "MESSAGE", "STATUS"),
            [
                (
                    row["dead_letter_id"], output.brief(output.micros(row["died_at"]), now),
                    row["customer_id"], origin(row), row["attempts"], row["error_type"],
                    output.first_line(output.error_message(row["error_details"]), WORDS),
                    None if given["status"] == "open" else row["status"],
                )
                for row in found
            ],
        )  # fmt: skip
        if len(found) == limit:
            app.say(f"{len(found)} shown, there may be more: add --limit {limit * 2}")
        app.say('Then: penstock dlq show ID  ·  dlq replay ID  ·  dlq discard ID --reason "…"')

    app.emit({"dead_letters": found}, people)


@dlq.command("groups")
@STATUS
@narrowing
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.pass_obj
def groups(app: App, /, limit: int, **given: Any) -> None:
    """Count dead letters by where they come from and why they died."""
    with app.use_cases() as cases:
        found = cases.letters.groups(_asked(cases, given), limit)
        now = cases.now()

    def people() -> None:
        if not found:
            app.say("No dead letters: nothing waits for a person.")
            return
        output.table(
            ("LETTERS", "WHAT", "ERROR", "FIRST", "LAST", "FOR EXAMPLE"),
            [
                (
                    group["count"], origin(group), group["error_type"],
                    output.brief(output.micros(group["first_at"]), now),
                    output.brief(output.micros(group["last_at"]), now), group["latest"],
                )
                for group in found
            ],
        )  # fmt: skip
        app.say("Then: penstock dlq show ID  ·  penstock dlq replay --error TYPE --dry-run")

    app.emit({"groups": found}, people)


@dlq.command("show")
@click.argument("letter_id", metavar="ID")
@click.pass_obj
def show(app: App, letter_id: str) -> None:
    """Show one in full; ID is the letter's, or the run's that died."""
    with app.use_cases() as cases:
        detail = cases.letters.detail(letter_id)
        now = cases.now()
    app.emit(detail, lambda: print_letter(detail, now))


@dlq.command("replay")
@click.argument("letter_ids", nargs=-1, metavar="[ID]...")
@narrowing
@click.option("--all", "everything", is_flag=True, help="All open ones that fit the options.")
@click.option("--dry-run", is_flag=True, help="Only say what would be replayed.")
@click.option("--rate", type=click.FloatRange(0, 10_000, min_open=True), metavar="N",
              help="So many a second; they are spread over time to come.")  # fmt: skip
@click.option("--limit", type=LIMIT, metavar="N", help="Replay at most so many.")
@click.option("--yes", is_flag=True, help="Do not ask before replaying many.")
@click.option(
    "--param", "parameters", multiple=True, metavar="K=V", help="Edit: a run's parameter."
)
@click.option("--data", metavar="TEXT|@FILE", help="Edit: a message's new content.")
@click.option("--attributes", type=JSON, help="Edit: all of a message's attributes, as JSON.")
@click.pass_obj
def replay(app: App, /, letter_ids: tuple[str, ...], **given: Any) -> None:
    r"""Try dead letters again: by ID (edited, if you like), or all that fit the options.

    \b
    penstock dlq replay dl_5m7t0c2d
    penstock dlq replay --subscription rosters --error TIMEOUT --dry-run
    penstock dlq replay --subscription rosters --rate 20 --yes
    penstock dlq replay dl_5m7t0c2d --data @mended.json
    """
    edit = _edit(given)
    with app.use_cases() as cases:
        asked = _meant(cases, letter_ids, given)
        if asked is None:
            if edit is not None and len(letter_ids) > 1:
                raise InvalidInput("ID", "one id, to edit it", f"{len(letter_ids)} ids")
            _replay_these(app, cases.letters, letter_ids, edit, is_dry=given["dry_run"])
            return
        if edit is not None:
            raise InvalidInput("ID", "the one letter to edit", "a filter")
        _replay_matching(app, cases.letters, asked, given)


@dlq.command("discard")
@click.argument("letter_ids", nargs=-1, metavar="[ID]...")
@narrowing
@click.option("--all", "everything", is_flag=True, help="All open ones that fit the options.")
@click.option("--dry-run", is_flag=True, help="Only say what would be discarded.")
@click.option("--limit", type=LIMIT, default=1_000, show_default=True, metavar="N",
              help="Discard at most so many.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask before discarding many.")
@click.option("--reason", required=True, metavar="TEXT", help="Why nobody will try it again.")
@click.pass_obj
def discard(app: App, /, letter_ids: tuple[str, ...], reason: str, **given: Any) -> None:
    r"""Close dead letters without trying them again: by ID, or all that fit the options.

    \b
    penstock dlq discard dl_5m7t0c2d --reason "a test"
    penstock dlq discard --subscription rosters --error POISON --reason "a test" --dry-run
    """
    with app.use_cases() as cases:
        asked = _meant(cases, letter_ids, given)
        chosen = list(letter_ids)
        if asked is not None:
            chosen = [row["dead_letter_id"] for row in cases.letters.page(asked, given["limit"])]
        elif given["dry_run"]:
            chosen = [row["dead_letter_id"] for row in _open(cases.letters, letter_ids)]
        if given["dry_run"]:
            text = f"Would discard {output.plural(len(chosen), 'dead letter')}.{_none(chosen)}"
            app.emit({"dry_run": True, "would_discard": chosen}, lambda: click.echo(text))
            return
        if asked is not None and len(chosen) > 1 and not given["yes"] and not app.is_json:
            confirm(f"Discard {output.plural(len(chosen), 'dead letter')}?")
        for letter_id in chosen:
            cases.letters.discard(letter_id, reason)

    def people() -> None:
        for letter_id in chosen:
            click.echo(f"{letter_id} is discarded.")
        if not chosen:
            click.echo(f"Nothing is discarded.{_none(chosen)}")
        elif asked is not None and len(chosen) == given["limit"]:
            app.say(f"{len(chosen)} are discarded, there may be more: say it again.")

    app.emit({"discarded": chosen}, people)


def _meant(
    cases: UseCases, letter_ids: tuple[str, ...], given: Mapping[str, Any]
) -> LettersAsked | None:
    """The filter that is meant, None when ids are; neither or both is refused."""
    asked = _asked(cases, {**given, "status": "open"})
    is_narrow = asked != LettersAsked()
    if letter_ids and (is_narrow or given["everything"]):
        raise InvalidInput("ID", "either ids or a filter", letter_ids[0])
    if not letter_ids and not is_narrow and not given["everything"]:
        fix = "Name letters, narrow them down (--error TYPE …), or say --all."
        raise InvalidInput("ID", "which dead letters", None, fix)
    return None if letter_ids else asked


def _open(letters: LetterCases, ids: tuple[str, ...]) -> list[Shape]:
    """The letters of these ids, all of them open; refused as the change itself would be."""
    found = [letters.detail(letter_id)["dead_letter"] for letter_id in ids]
    for row in found:
        if row["status"] != "open":
            raise Conflict(f"{row['dead_letter_id']} is not open: it was {row['status']}.")
    return found


def _none(chosen: Sequence[object]) -> str:
    """Where to look when no letter fits."""
    return "" if chosen else " No open one fits; penstock dlq groups shows which there are."


def _asked(cases: UseCases, given: Mapping[str, Any]) -> LettersAsked:
    """What the options mean; times are relative to the database's."""
    now = cases.now() if given["since"] or given["until"] else 0
    names = ("status", "kind", "customer", "subscription", "topic", "pipeline", "processor",
             "partition", "correlation_id", "error_type")  # fmt: skip
    return LettersAsked(
        **{name: given[name] for name in names},
        since=moment(given["since"], "since", now),
        until=moment(given["until"], "until", now),
    )


def _edit(given: Mapping[str, Any]) -> Edit | None:
    data = given["data"]
    if data is not None:
        data = (read_text(Path(data[1:]), "data") if data.startswith("@") else data).encode()
    parameters = pairs(given["parameters"], "param") if given["parameters"] else None
    edit = Edit(parameters=parameters, data=data, attributes=given["attributes"])
    return None if edit == Edit() else edit


def _replay_these(
    app: App, letters: LetterCases, ids: tuple[str, ...], edit: Edit | None, *, is_dry: bool
) -> None:
    if is_dry:
        found = _open(letters, ids)
        for row in found:
            _check_edit(edit, row["kind"])
        open_ones = [row["dead_letter_id"] for row in found]
        text = f"Would replay {output.plural(len(open_ones), 'letter')}."
        app.emit({"dry_run": True, "would_replay": open_ones}, lambda: click.echo(text))
        return
    done = [letters.replay(letter_id, edit) for letter_id in ids]

    def people() -> None:
        for one in done:
            told = one["replayed_as"]
            what = told if told.startswith("run_") else f"message {told}, the next round"
            click.echo(f"{one['dead_letter_id']} is tried again as {what}.")

    app.emit({"replayed": done}, people)


def _check_edit(edit: Edit | None, kind: str) -> None:
    """Refuse, before anything is tried, to edit what this kind of letter does not have."""
    if edit is None:
        return
    if kind == "delivery" and edit.parameters is not None:
        expected = "nothing, because a message died: --data, --attributes"
        raise InvalidInput("param", expected, edit.parameters)
    if kind == "run" and edit.parameters is None:
        raise InvalidInput("data", "nothing, because a run died: --param", "an edited message")


def _replay_matching(
    app: App, letters: LetterCases, asked: LettersAsked, given: Mapping[str, Any]
) -> None:
    """A dry step first: it says how many there are; then step after step."""
    limit = given["limit"]
    would = letters.replay_matching(asked, Step(limit=STEP, is_dry=True))
    many = would["matched"] if limit is None else min(limit, would["matched"])
    if given["dry_run"]:
        app.emit(would, lambda: _would(would, many))
        return
    if not many:
        text = f"Nothing is replayed.{_none(())}"
        app.emit({"replayed": [], "refused": []}, lambda: click.echo(text))
        return
    if many > 1 and not given["yes"] and not app.is_json:
        confirm(f"Replay {output.plural(many, 'dead letter')}?")
    done: list[Shape] = []
    refused: list[Shape] = []
    step = Step(rate=given["rate"])
    with click.progressbar(length=many, label="Replaying", hidden=app.is_json) as bar:
        while many > len(done) + len(refused):
            left = many - len(done) - len(refused)
            told = letters.replay_matching(asked, replace(step, limit=min(STEP, left)))
            done += told["replayed"]
            refused += told["refused"]
            bar.update(len(told["replayed"]) + len(told["refused"]))
            if told["next_before"] is None:
                break
            step = replace(
                step, before=told["next_before"], start_at=output.micros(told["next_at"])
            )

    def people() -> None:
        click.echo(f"{output.plural(len(done), 'letter')} replayed, {len(refused)} refused.")
        _print_refused(refused)

    app.emit({"replayed": done, "refused": refused}, people)


def _would(would: Shape, many: int) -> None:
    count = output.plural(many - len(would["refused"]), "dead letter")
    click.echo(f"Would replay {count}.{_none(range(many))}")
    _print_refused(would["refused"])


def _print_refused(refused: list[Shape]) -> None:
    for one in refused[:20]:
        click.echo(f"  {one['dead_letter_id']}: {one['why']}")
    if len(refused) > 20:
        click.echo(f"  and {len(refused) - 20} more")
