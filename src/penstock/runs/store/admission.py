"""Admission: due, unpaused, unblocked runs become claimable; ageing; pause and resume.

All checks happen here, in set-based statements that any number of replicas may run at once, so that
claiming is a plain index scan.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first, one
from penstock.limits.store.run_queue import queue_pause

AGE_PER_CUSTOMER = 5
BUDGET: Final = "budget"
"""Who pauses the runs of a used-up budget."""


class PauseRow(NamedTuple):
    """A pause in force."""

    scope: str
    subject: int
    paused_at: int
    paused_by: str
    reason: str
    customer_id: str | None
    pipeline: str | None


def run_admit_due(tx: Tx, n: int) -> dict[int, int]:
    """Make up to `n` due runs claimable. Return how many per pool."""
    return dict(tx.rows("run_admit_due", {"n": n}))


class AdmissionState(NamedTuple):
    """Pending work of the admitter, other than due runs."""

    next_at: Micros | None
    """When the next run is due."""
    has_new: bool
    """Whether runs wait to be queued for limits."""
    has_queue: bool
    """Whether runs are queued for limits."""
    has_settings: bool
    """Whether changed settings of customers must be applied to live runs."""
    now: Micros


def admission_state(tx: Tx) -> AdmissionState:
    """Return the pending work of the admitter."""
    next_at, has_new, has_queue, has_settings, now = one(tx.rows("admission_state"))
    return AdmissionState(next_at, bool(has_new), bool(has_queue), bool(has_settings), now)


def run_next_due_at(tx: Tx) -> int | None:
    """Return when the next waiting run becomes due."""
    row = first(tx.rows("run_next_due_at"))
    return None if row is None else row[0]


def run_age(tx: Tx, per_customer: int = AGE_PER_CUSTOMER) -> int:
    """Raise by one the level of runs that have waited another ten minutes. Return how many."""
    return tx.run("run_age", {"per_customer": per_customer})


def pause_put(tx: Tx, scope: str, subject: int, actor: str, reason: str) -> bool:
    """Pause a subject and its waiting runs. Return False if it was already paused.

    A pause by a budget is taken over: its end must not end a person's.
    """
    params = {"scope": scope, "subject": subject, "actor": actor, "reason": reason,
              "budget": BUDGET}  # fmt: skip
    is_new = bool(tx.rows("pause_put", params))
    _pause_covered(tx)
    return is_new


def pause_drop(tx: Tx, scope: str, subject: int, *, only: str | None = None) -> str | None:
    """Resume a subject. Return who had paused it, None if it was not paused.

    only: leave pauses of others in force.
    """
    row = first(tx.rows("pause_drop", {"scope": scope, "subject": subject, "only": only}))
    tx.run("run_resume_uncovered")
    return None if row is None else str(row[0])


def pauses_apply(tx: Tx) -> int:
    """Repair runs that missed a concurrent pause or resume. Return how many."""
    return _pause_covered(tx) + tx.run("run_resume_uncovered")


def _pause_covered(tx: Tx) -> int:
    """Pause covered runs; they release their limits, so that no other run waits for them."""
    covered = tx.run("run_pause_covered")
    if covered:
        queue_pause(tx)
    return covered


def pause_list(tx: Tx, customer_key: CustomerKey | None = None) -> list[PauseRow]:
    """Return all pauses in force; for a customer, its own and those of its configs."""
    if customer_key is None:
        return [PauseRow._make(row) for row in tx.rows("pause_list")]
    rows = tx.rows("pause_list_customer", {"customer": customer_key})
    return [PauseRow._make(row) for row in rows]


def blocked_keys(tx: Tx, n: int) -> list[str]:
    """Return ordering keys whose first run is blocked although no run precedes it (a missed
    release).
    """
    return [row[0] for row in tx.rows("run_blocked_keys", {"n": n})]
