"""Records of the journal."""

from __future__ import annotations

from typing import Any

from penstock.core.records.record import Record, Time, field

__all__ = ["JournalEntry", "ListedJournalEntry"]


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


class ListedJournalEntry(JournalEntry):
    """A journal entry with its subject."""

    kind: str
    """Kind of its subject: run, flow, backfill, dead_letter, key, customer …"""
    subject: str | None
    """Public id of its subject; null if the subject has none."""
    customer: str | None = field(name="customer_id")
    """Customer that owns it; null for entries about the installation."""
    text: str
    """The entry as a sentence."""
