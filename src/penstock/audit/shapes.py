"""Journal entries as the API and the command line show them."""

from __future__ import annotations

from typing import Any

from penstock.audit.rows import JournalRow
from penstock.core.clock import iso
from penstock.core.formatting import parsed


def journal_shape(row: JournalRow) -> dict[str, Any]:
    """Return the JSON form of a journal entry."""
    return {
        "at": iso(row.at),
        "action": row.action,
        "actor": row.actor,
        "from_state": row.from_state,
        "to_state": row.to_state,
        "why": row.why,
        "detail": parsed(row.detail),
    }
