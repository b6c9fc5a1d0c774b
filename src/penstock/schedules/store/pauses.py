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


def pause_write(tx: Tx, change: PauseChange, *, is_pause: bool) -> bool:
    """Pause or resume a subject and record it. Return False if nothing changed."""
    scope, subject, customer, actor, reason = change
    if is_pause:
        changed = pause_put(tx, scope, subject, actor, reason)
    else:
        changed = pause_drop(tx, scope, subject)
    if not changed:
        return False
    action = "paused" if is_pause else "resumed"
    journal_append_many(tx, [Entry(scope, subject, customer, action, actor, why=reason or None)])
    if customer is not None:
        config_id = subject if scope == "config" else None
        audit_append(tx, [Change(customer, action.upper(), config_id, actor, reason)])
    return True
