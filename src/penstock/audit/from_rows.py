"""Records of the journal from the rows of the store."""

from __future__ import annotations

from penstock.audit.records import JournalEntry
from penstock.audit.rows import JournalRow
from penstock.core.formatting import parsed
from penstock.core.records.record import time


def journal_record(row: JournalRow) -> JournalEntry:
    """Return the record of a journal entry."""
    return JournalEntry(
        at=time(row.at),
        action=row.action,
        actor=row.actor,
        from_state=row.from_state,
        to_state=row.to_state,
        why=row.why,
        detail=parsed(row.detail),
    )
