"""Admission: due, unpaused, unblocked runs become claimable; ageing; pause and resume.

Claiming is a plain index scan because all judgement happens here, in set-based statements that any
number of replicas may run at once.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.db.store import Tx, first, one
from penstock.limits.store.run_queue import lines_pause

AGE_PER_CUSTOMER = 5


class Pause(NamedTuple):
    """A pause in force."""

    scope: str
    subject: int
    paused_at: int
    paused_by: str
    reason: str
    customer_id: str | None
    pipeline: str | None


def run_admit_due(tx: Tx, n: int) -> dict[int, int]:
    """Make up to `n` due runs claimable; returns how many per pool."""
    return dict(tx.rows("run_admit_due", {"n": n}))


def admission_look(tx: Tx) -> tuple[int | None, bool, bool, int]:
    """When the next run is due, whether runs wait for a place in line, whether any has one, now."""
    next_at, has_new, has_line, now = one(tx.rows("admission_look"))
    return next_at, bool(has_new), bool(has_line), now


def run_next_due_at(tx: Tx) -> int | None:
    """When the next waiting run becomes due."""
    row = first(tx.rows("run_next_due_at"))
    return None if row is None else row[0]


def run_age(tx: Tx, per_customer: int = AGE_PER_CUSTOMER) -> int:
    """Raise runs that waited another ten minutes by one level; returns how many."""
    return tx.run("run_age", {"per_customer": per_customer})


def pause_put(tx: Tx, scope: str, subject: int, actor: str, reason: str) -> bool:
    """Pause something and what waits of it; False when it was paused before."""
    params = {"scope": scope, "subject": subject, "actor": actor, "reason": reason}
    is_new = bool(tx.rows("pause_put", params))
    _pause_covered(tx)
    return is_new


def pause_drop(tx: Tx, scope: str, subject: int) -> bool:
    """Resume something; False when it was not paused."""
    was_paused = bool(tx.rows("pause_drop", {"scope": scope, "subject": subject}))
    tx.run("run_resume_uncovered")
    return was_paused


def pauses_apply(tx: Tx) -> int:
    """Repair runs that slipped past a pause or a resume; returns how many."""
    return _pause_covered(tx) + tx.run("run_resume_uncovered")


def _pause_covered(tx: Tx) -> int:
    """Put covered runs aside; a paused run holds no limit, or others would wait for a person."""
    covered = tx.run("run_pause_covered")
    if covered:
        lines_pause(tx)
    return covered


def pause_list(tx: Tx, customer: int | None = None) -> list[Pause]:
    """Every pause in force; or a customer's own and those of its configs."""
    if customer is None:
        return [Pause._make(row) for row in tx.rows("pause_list")]
    rows = tx.rows("pause_list_customer", {"customer": customer})
    return [Pause._make(row) for row in rows]


def blocked_keys(tx: Tx, n: int) -> list[str]:
    """Ordering keys whose head is blocked with nothing in front (a missed release)."""
    return [row[0] for row in tx.rows("run_blocked_keys", {"n": n})]
