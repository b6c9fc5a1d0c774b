"""Print a dead letter as text: its origin, its error and its content."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import click

from penstock.cli import output
from penstock.cli.backends.protocol import Shape


def origin(row: Mapping[str, Any]) -> str:
    """Return the origin of a dead letter: its subscription, or pipeline/phase/processor."""
    if row["subscription"]:
        return str(row["subscription"])
    path = [row["pipeline_template"], row["phase"], row["processor"]]
    return "/".join(part for part in path if part) or row["kind"]


def print_dead_letter(detail: Shape, now: int) -> None:
    """Print one dead letter in full, with the commands that apply to it."""
    letter = detail["dead_letter"]
    letter_id = letter["dead_letter_id"]
    click.echo(f"{letter_id} · {origin(letter)} · {letter['status']}")
    details = letter["error_details"]
    output.print_facts(
        [
            ("failed", output.format_time(output.parse_time(letter["died_at"]), now)),
            ("customer", letter["customer_id"] or "none (system)"),
            ("run", letter["run_id"]),
            ("message", letter["message_id"]),
            ("topic", letter["topic"]),
            ("partition", letter["partition"]),
            ("correlation", letter["correlation_id"]),
            ("attempts", letter["attempts"]),
            ("replays", letter["replays"] or None),
            ("error", f"{letter['error_type']}: {output.error_message(details)}"),
            ("closed", _closed(letter, now)),
        ]
    )
    if detail["message"] is not None:
        _show_message(detail["message"])
    if detail["run"] is not None and detail["run"].get("parameters"):
        click.echo(f"  parameters  {json.dumps(detail['run']['parameters'], ensure_ascii=False)}")
    if letter["status"] == "open":
        click.echo(f"Replay: penstock dlq replay {letter_id}   ·   "
                   f'discard: penstock dlq discard {letter_id} --reason "…"')  # fmt: skip


def _show_message(message: Shape) -> None:
    for name, value in sorted(message["attributes"].items()):
        click.echo(f"  {output.escape_control(name)} = {output.escape_control(value)}")
    text = message["text"]
    if text is None:
        size = len(base64.b64decode(message["data"]))
        click.echo(f"  {size} bytes, not text (see --json)")
    else:
        click.echo(output.escape_control(text[:2000]) + ("…" if len(text) > 2000 else ""))


def _closed(letter: Shape, now: int) -> str | None:
    if letter["resolved_at"] is None:
        return None
    at = output.format_time(output.parse_time(letter["resolved_at"]), now)
    return f"{letter['status']} {at} by {letter['resolved_by']}: {letter['resolution']}"
