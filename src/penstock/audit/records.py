"""Records of the journal."""

from __future__ import annotations

from typing import Any

from penstock.core.records.record import Record, Time

__all__ = ["JournalEntry"]


class JournalEntry(Record):
    """A state change or action recorded in the journal."""

    at: Time
    """Time at which it happened."""
    action: str
    """Name of the state change or action."""
    actor: str
    """Name of the key, user, worker or service that acted."""
    from_state: str | None
    """State before the change; null if the state did not change."""
    to_state: str | None
    """State after the change; null if the state did not change."""
    why: str | None
    """Reason for the change; null if none was given."""
    detail: Any
    """Further facts as JSON; null if there are none."""
