"""Changes to pauses, with their entries in the journal and the audit trail."""

from __future__ import annotations

from typing import NamedTuple

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.runs.store.admission import pause_drop, pause_put
from penstock.schedules.store.configs import Change, audit_append


class PauseChange(NamedTuple):
    """A pause or resume: its subject, author and reason, and the customer concerned, if any."""

    scope: str
    subject: int
    customer_key: CustomerKey | None
    actor: str
    reason: str


def pause_begin(tx: Tx, change: PauseChange) -> bool:
    """Pause a subject and record it. Return False if it was already paused."""
    is_new = pause_put(tx, change.scope, change.subject, change.actor, change.reason)
    if is_new:
        _record(tx, change, "paused")
    return is_new


def pause_end(tx: Tx, change: PauseChange, *, only: str | None = None) -> str | None:
    """Resume a subject and record it. Return who had paused it, None if it was not paused.

    only: leave pauses of others in force.
    """
    paused_by = pause_drop(tx, change.scope, change.subject, only=only)
    if paused_by is not None:
        _record(tx, change, "resumed")
    return paused_by


def _record(tx: Tx, change: PauseChange, action: str) -> None:
    scope, subject, customer, actor, reason = change
    journal_append_many(tx, [Entry(scope, subject, customer, action, actor, why=reason or None)])
    if customer is not None:
        config_id = subject if scope == "config" else None
        audit_append(tx, [Change(customer, action.upper(), config_id, actor, reason)])
