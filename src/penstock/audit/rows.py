"""Rows of the journal, the outbox and alerts as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.core.naming import SYSTEM_CUSTOMER, CustomerKey


class Entry(NamedTuple):
    """A new journal entry (batch of `journal_append_many`)."""

    kind: str
    subject: int
    customer_key: CustomerKey | None
    action: str
    actor: str
    from_state: str | None = None
    to_state: str | None = None
    token: int | None = None
    why: str | None = None
    detail: str | None = None


class JournalRow(NamedTuple):
    """A journal entry as read from the database."""

    seq: int
    at: int
    kind: str
    subject: int
    customer_key: CustomerKey | None
    action: str
    actor: str
    from_state: str | None
    to_state: str | None
    token: int | None
    why: str | None
    detail: str | None


class ListedEntry(NamedTuple):
    """A journal entry in a list (fragment `listed_columns`)."""

    cluster: int
    xid: str
    seq: int
    at: int
    kind: str
    subject: int
    customer_id: str | None
    action: str
    actor: str
    from_state: str | None
    to_state: str | None
    why: str | None
    detail: str | None


class JournalFilter(NamedTuple):
    """Filter of a list of journal entries."""

    kind: str | None = None
    action: str | None = None
    actor: str | None = None
    customer: CustomerKey | None = None
    is_notable: bool = False
    """Whether to leave out routine entries: runs that were created or completed, and gates that
    still wait.
    """


class Seal(NamedTuple):
    """A sealed block: number of entries, their root hash, and the head that extends the chain."""

    block: int
    from_seq: int
    to_seq: int
    to_xid: str
    entries: int
    root: str
    previous: str
    head: str
    sealed_at: int
    cluster: int
    version: int = 2


class UnsealedBlock(NamedTuple):
    """The next entries of the journal to seal, read by `seal_read`."""

    after_block: int
    """The newest block when the entries were read; 0 if there was none."""
    after_xid: str
    after_seq: int
    from_seq: int
    to_seq: int
    to_xid: str
    entries: int
    root: str
    cluster: int


class OutboxMessage(NamedTuple):
    """A message taken from the outbox."""

    outbox_id: int
    topic: str
    ordering_key: str | None
    payload: str
    created_at: int
    customer_key: CustomerKey = SYSTEM_CUSTOMER
    attributes: str = "{}"


class AlertRow(NamedTuple):
    """An alert as listed."""

    alert_id: int
    rule: str
    dedupe_key: str
    severity: str
    customer_id: str | None
    subject_kind: str
    subject: int
    message: str
    detail: str
    state: str
    times: int
    opened_at: int
    last_at: int
    closed_at: int | None
    closed_by: str | None
    pipeline: str | None = None
    acknowledged_at: int | None = None
    acknowledged_by: str | None = None
    note: str | None = None
    silence: int | None = None

    @property
    def shown_state(self) -> str:
        """Displayed state: an open alert that a silence suppresses is `silenced`."""
        return "silenced" if self.state == "open" and self.silence is not None else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """Which alerts to list; None matches all."""

    state: str | None = None
    customer_key: CustomerKey | None = None
    severity: str | None = None
    rule: str | None = None
    pipeline: str | None = None
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAlert:
    """An alert to raise. While one with the same `dedupe_key` is open, a repeat is only counted.

    If `pipeline` is None, it is that of the config, flow or run. In `detail`, `fix` is the command
    that fixes the cause, `values` holds the measurements, and `threshold` describes the limit.
    """

    rule: str
    dedupe_key: str
    severity: str
    subject_kind: str
    subject: int
    message: str
    customer_key: CustomerKey | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    pipeline: str | None = None
