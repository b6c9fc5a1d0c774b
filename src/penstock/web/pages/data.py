"""Untrusted data as text: JSON indented, bytes decoded, errors with their traceback."""

from __future__ import annotations

import json
from typing import Any

from penstock.audit.records import JournalEntry
from penstock.dead_letters.records import DeadLetter
from penstock.runs.records import Run
from penstock.web.detail_parts import ErrorPanel
from penstock.web.words import word


def as_text(value: Any) -> str:
    """Return data as readable text."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return bytes_text(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def journal_text(entry: JournalEntry) -> str:
    """Return an entry of the journal: the action, the new state, the reason."""
    moved = f" → {word(entry.to_state)}" if entry.to_state else ""
    why = f": {entry.why}" if entry.why and entry.why != entry.actor else ""
    return f"{entry.action.replace('_', ' ')}{moved}{why}"


def bytes_text(value: bytes) -> str:
    """Return the content of a message: JSON indented, else text, else a note."""
    try:
        decoded = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(value):,} bytes that are not text"
    try:
        return json.dumps(json.loads(decoded), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return decoded


def error_panel(one: Run | DeadLetter, *, title: str, state: str) -> ErrorPanel:
    """Return an error: its message, then its traceback."""
    details = one.error_details if isinstance(one.error_details, dict) else {}
    trace = details.get("traceback") or details.get("stack")
    phrase = details.get("message") or details.get("error")
    rest = {
        name: value
        for name, value in details.items()
        if name not in ("message", "error", "traceback", "stack") and value
    }
    body = str(trace) if trace else as_text(rest) if rest or not phrase else ""
    if not details:
        body = as_text(one.error_details)
    return ErrorPanel(
        title=title,
        state=state,
        word=one.error_type or "",
        tag=one.error_class or "",
        text="" if phrase is None else str(phrase),
        body=body,
        foot=str(rest.get("not_retried") or ""),
    )
