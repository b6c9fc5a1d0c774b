"""Changes since a position in the journal, as hints for open pages."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first, one

ENTRIES_MAX: Final = 2_000
ALERTS_MAX: Final = 1_000


class JournalPosition(NamedTuple):
    """A position in the journal: entries are ordered by cluster, transaction and number."""

    cluster: int
    xid: int
    seq: int


class ChangedSubject(NamedTuple):
    """A subject with a new journal entry."""

    kind: str
    subject: int
    customer_key: CustomerKey | None
    state: str
    """State that it entered; empty if it kept its state."""


class ChangeFigures(NamedTuple):
    """Figures about changes that are not in the journal; they differ after each change."""

    alerts: dict[CustomerKey | None, tuple[int, ...]]
    claims: int
    messages: int


class RecentChanges(NamedTuple):
    """Changes since a position, and the position after them."""

    position: JournalPosition
    subjects: list[ChangedSubject]
    is_cut: bool
    """Whether entries were skipped because there were too many."""
    figures: ChangeFigures


def changes_end(tx: Tx) -> JournalPosition:
    """Return the position at the end of the journal."""
    cluster, xid, seq = one(tx.rows("changes_end"))
    return JournalPosition(int(cluster), int(xid), int(seq))


def changes_after(tx: Tx, after: JournalPosition) -> RecentChanges:
    """Return the changes since a position; bounded."""
    params = {"cluster": after.cluster, "after_xid": str(after.xid), "after_seq": after.seq,
              "n": ENTRIES_MAX}  # fmt: skip
    rows = tx.rows("changes_after", params)
    is_cut = len(rows) >= ENTRIES_MAX
    if is_cut:
        position = changes_end(tx)
    elif rows:
        position = JournalPosition(after.cluster, int(rows[-1][0]), int(rows[-1][1]))
    else:
        end = changes_end(tx)
        # After a restore the database writes under another cluster.
        position = end if end.cluster != after.cluster else after
    found = dict.fromkeys(ChangedSubject(*row[2:]) for row in rows)
    alerts = {row[0]: tuple(row[1:]) for row in tx.rows("changes_alerts", {"n": ALERTS_MAX})}
    counted = first(tx.rows("changes_counters")) or (0, 0)
    figures = ChangeFigures(alerts, int(counted[0] or 0), int(counted[1] or 0))
    return RecentChanges(position, list(found), is_cut, figures)
