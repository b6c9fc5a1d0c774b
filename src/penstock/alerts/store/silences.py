"""Silences: periods during which no notices are sent about matching alerts.

An alert that a silence matches is marked with it, so that lists and the alert sender need no
separate matching. The sender keeps the marks current: a silence that starts later, or ends,
takes effect in its next pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first, one


class SilenceRow(NamedTuple):
    """A silence as listed."""

    silence_id: int
    customer_id: str | None
    pipeline: str | None
    rule: str | None
    severity: str | None
    dedupe_key: str | None
    reason: str
    starts_at: int
    ends_at: int
    is_active: bool
    alerts: int
    created_at: int
    created_by: str
    ended_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceDraft:
    """A silence to add; a field that is None matches every alert."""

    ends_at: int
    reason: str
    actor: str
    starts_at: int | None = None
    customer_key: CustomerKey | None = None
    pipeline: str | None = None
    rule: str | None = None
    severity: str | None = None
    dedupe_key: str | None = None
    source: str | None = None


def silence_put(tx: Tx, draft: SilenceDraft) -> int | None:
    """Add a silence and mark the alerts that it matches now.

    Return its id, or None if the same window of the settings has added it before.
    """
    params = {
        "customer": draft.customer_key,
        "pipeline": draft.pipeline,
        "rule": draft.rule,
        "severity": draft.severity,
        "dedupe_key": draft.dedupe_key,
        "starts_at": draft.starts_at,
        "ends_at": draft.ends_at,
        "reason": draft.reason,
        "source": draft.source,
        "actor": draft.actor,
    }
    row = first(tx.rows("silence_put", params))
    if row is None:
        return None
    tx.run("silences_apply")
    return int(row[0])


def silence_list(
    tx: Tx, *, customer_key: CustomerKey | None, is_ended: bool, before: int, limit: int
) -> list[SilenceRow]:
    """Return silences, newest first; with `is_ended` also those that have ended."""
    params = {"customer": customer_key, "ended": is_ended, "before": before, "limit": limit}
    return [_row(row) for row in tx.rows("silence_list", params)]


def silence_get(tx: Tx, silence_id: int, customer_key: CustomerKey | None) -> SilenceRow | None:
    """Return a silence; None if there is none, or it belongs to another customer."""
    params = {"silence_id": silence_id, "customer": customer_key}
    row = first(tx.rows("silence_get", params))
    return None if row is None else _row(row)


def silence_end(tx: Tx, silence_id: int, actor: str) -> bool:
    """End a silence now; return False if it had ended. The sender reports what still fires."""
    return bool(tx.rows("silence_end", {"silence_id": silence_id, "actor": actor}))


def silences_refresh(tx: Tx) -> int:
    """Mark alerts that a silence matches; unmark and report those whose silence has ended.

    Return how many are no longer silenced.
    """
    is_any, is_marked = one(tx.rows("silences_exist"))
    lifted = [(int(row[0]),) for row in tx.rows("silences_over")] if is_marked else []
    if is_any:
        tx.run("silences_apply")
    if lifted:
        tx.run("silences_lift", None, lifted)
    return len(lifted)


def _row(row: tuple[object, ...]) -> SilenceRow:
    made = SilenceRow._make(row)
    return made._replace(is_active=bool(made.is_active), alerts=int(made.alerts))
