"""Records of the journal from the rows of the store."""

from __future__ import annotations

from typing import Final

from penstock.audit.records import JournalEntry, ListedJournalEntry
from penstock.audit.rows import JournalRow, ListedEntry
from penstock.audit.sentences import sentence_of
from penstock.core.formatting import parsed
from penstock.core.ids import encode
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


IDS: Final = {"run": "run", "flow": "flow", "backfill": "bf", "dead_letter": "dl", "key": "key"}
"""Kinds of subjects that have a public id, with its prefix."""


def listed_record(row: ListedEntry, name: tuple[str, str] | None) -> ListedJournalEntry:
    """Return the record of an entry in a list; `name` is the name of its run."""
    detail = parsed(row.detail)
    known = detail if isinstance(detail, dict) else {}
    prefix = IDS.get(row.kind)
    return ListedJournalEntry(
        at=time(row.at),
        action=row.action,
        actor=row.actor,
        from_state=row.from_state,
        to_state=row.to_state,
        why=row.why,
        detail=detail,
        kind=row.kind,
        subject=None if prefix is None or row.subject < 0 else encode(prefix, row.subject),
        customer=row.customer_id,
        text=sentence_of(row, known, name),
    )
