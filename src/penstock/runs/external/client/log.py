"""Log entries of external workers: checked, masked and bounded."""

from __future__ import annotations

from typing import Final

from penstock.core.clock import from_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.db.store import Tx
from penstock.runs.external.records import RunLogReceipt, RunLogReport
from penstock.runs.rows import HeldRun
from penstock.runs.store.logs import LogBounds, log_entry, run_log_append

SIZE_MAX: Final = 250_000
"""Maximum number of characters of the entries of one request."""
LOG_BOUNDS: Final = LogBounds(entries=10_000, characters=1_000_000, parts=900)
"""How much of the log of a run is kept."""


def check_entries(report: RunLogReport) -> None:
    """Raise InvalidInput if a report is empty or too long."""
    size = sum(len(one.message) for one in report.entries)
    if not report.entries or size > SIZE_MAX:
        expected = f"1 to 1,000 entries with at most {SIZE_MAX:,} characters in all"
        raise InvalidInput("entries", expected, f"{size:,} characters")


def log_add(tx: Tx, held: HeldRun, report: RunLogReport) -> RunLogReceipt:
    """Add the entries of a report to the log of the run that its caller holds."""
    now = tx.now()
    entries = [
        log_entry(
            now if one.at is None else from_datetime(one.at), one.level, one.logger, one.message
        )
        for one in report.entries
    ]
    run_log_append(tx, held, entries, LOG_BOUNDS)
    return RunLogReceipt(run_id=encode("run", held.run_id), entries=len(entries))
