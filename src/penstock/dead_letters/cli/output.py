"""Print a dead letter as text: its origin, its error and its content."""

from __future__ import annotations

import json

import click

from penstock.cli import output
from penstock.dead_letters.records import (
    DeadLetter,
    DeadLetterDetail,
    DeadLetterGroup,
    DeadLetterMessage,
)


def origin(row: DeadLetter | DeadLetterGroup) -> str:
    """Return the origin of a dead letter: its subscription, or pipeline/phase/processor."""
    if row.subscription:
        return row.subscription
    path = [row.pipeline, row.phase, row.processor]
    return "/".join(part for part in path if part) or row.kind


def replayable(row: DeadLetterGroup) -> str | None:
    """Return how many of the checked dead letters of a group can be replayed."""
    if not row.checked:
        return None
    share = f"{row.replayable} of {row.checked}"
    return share if row.checked == row.count else f"{share} newest"


def print_dead_letter(detail: DeadLetterDetail, now: int) -> None:
    """Print one dead letter in full, with the commands that apply to it."""
    dead_letter = detail.dead_letter
    dead_letter_id = dead_letter.dead_letter_id
    click.echo(f"{dead_letter_id} · {origin(dead_letter)} · {dead_letter.status}")
    error = output.error_text(
        dead_letter.error_type, dead_letter.error_class, dead_letter.error_details
    )
    output.print_facts(
        [
            ("failed", output.format_time(dead_letter.died_at, now)),
            ("customer", dead_letter.customer or "none (system)"),
            ("run", dead_letter.run_id),
            ("message", dead_letter.message_id),
            ("topic", dead_letter.topic),
            ("partition", dead_letter.partition),
            ("correlation", dead_letter.correlation_id),
            ("attempts", dead_letter.attempts),
            ("replays", dead_letter.replays or None),
            ("error", error),
            ("not retried", detail.not_retried),
            ("closed", _closed(dead_letter, now)),
        ]
    )
    output.print_traceback(dead_letter.error_details)
    if detail.message is not None:
        _show_message(detail.message)
    if detail.run is not None and detail.run.parameters:
        click.echo(f"  parameters  {json.dumps(detail.run.parameters, ensure_ascii=False)}")
    if dead_letter.status == "open":
        click.echo(f"Replay: penstock dlq replay {dead_letter_id}   ·   "
                   f'discard: penstock dlq discard {dead_letter_id} --reason "…"')  # fmt: skip


def _show_message(message: DeadLetterMessage) -> None:
    for name, value in sorted(message.attributes.items()):
        click.echo(f"  {output.escape_control(name)} = {output.escape_control(value)}")
    text = message.text
    if text is None:
        click.echo(f"  {len(message.data)} bytes, not text (see --json)")
    else:
        click.echo(output.escape_control(text[:2000]) + ("…" if len(text) > 2000 else ""))


def _closed(dead_letter: DeadLetter, now: int) -> str | None:
    if dead_letter.resolved_at is None:
        return None
    at = output.format_time(dead_letter.resolved_at, now)
    return f"{dead_letter.status} {at} by {dead_letter.resolved_by}: {dead_letter.resolution}"
