"""Subjects of alerts: their public ids, and commands that show or fix the cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.ids import encode

_ID_KINDS: Final = {"config": "cfg", "run": "run", "flow": "flow", "backfill": "bf"}
_COMMANDS: Final = {
    "flow": "penstock explain",
    "run": "penstock runs show",
    "config": "penstock why",
    "backfill": "penstock backfills show",
}
"""Command that shows the subject of an alert without a specific fix."""


def subject_id(kind: str, number: int) -> str:
    """Return the public id of the subject of an alert."""
    prefix = _ID_KINDS.get(kind)
    return encode(prefix, number) if prefix else str(number)


def command_of(kind: str, subject: str, detail: Mapping[str, Any]) -> str | None:
    """Return the command that fixes the cause of an alert, or shows its subject."""
    fix = detail.get("fix")
    if fix:
        return str(fix)
    command = _COMMANDS.get(kind)
    return f"{command} {subject}" if command and subject else None
