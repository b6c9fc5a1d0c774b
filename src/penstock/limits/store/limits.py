"""Limits: shared slots and rates. Declaration, grants, renewals, quota errors, upkeep.

Every change of holders goes through a grant transaction (`limit_grant`), under the lock of the
limit's row. Renewals need no such lock, because a lease ends only by being deleted. Callers wake
`GrantResult.channels` after the commit. Reads for display are in `reads`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import penstock.limits.rules as rules
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.errors import NotFound
from penstock.core.naming import SYSTEM_CUSTOMER, CustomerKey
from penstock.db.store import Tx, first, one
from penstock.limits.rules import HISTORY_KEPT, LimitSettings
from penstock.limits.store.grant import SNOOZED, TICKET_US, capacity_note, grant_locked, limit_lock
from penstock.limits.store.rows import GrantInput, GrantResult, LeaseRow, LimitRow

HISTORY_TRIM: Final = 2 * HISTORY_KEPT
NO_REQUESTS: Final = GrantInput(broker=SNOOZED)
"""A grant transaction without requests: it only serves the queue."""


class QuotaResult(NamedTuple):
    """The result of a quota error: the number of errors so far and the new capacity."""

    errors: int
    is_new: bool
    effective: int | None
    learned: float | None


def limit_get(tx: Tx, name: str, customer_key: CustomerKey = SYSTEM_CUSTOMER) -> LimitRow | None:
    """Return a limit by name."""
    row = first(tx.rows("limit_get", {"customer": customer_key, "name": name}))
    return None if row is None else LimitRow._make(row)


def limit_ensure(
    tx: Tx,
    name: str,
    terms: LimitSettings,
    *,
    customer_key: CustomerKey = SYSTEM_CUSTOMER,
    actor: str = "",
) -> LimitRow:
    """Return a limit by name; create it with these terms if it does not exist."""
    found = limit_get(tx, name, customer_key)
    if found is None:
        tx.rows("limit_add", _params(name, terms, customer_key, actor, is_declared=False))
        found = limit_get(tx, name, customer_key)
    assert found is not None, name
    return found


def limit_declare(
    tx: Tx,
    name: str,
    terms: LimitSettings,
    *,
    customer_key: CustomerKey = SYSTEM_CUSTOMER,
    actor: str,
) -> tuple[LimitRow, GrantResult | None]:
    """Create or change a limit. A change takes effect immediately, in this transaction."""
    rules.check_limit_name(name)
    if tx.rows("limit_add", _params(name, terms, customer_key, actor, is_declared=True)):
        made = limit_get(tx, name, customer_key)
        assert made is not None, name
        _journal(tx, made, "declared", actor, detail=_detail(terms))
        return made, None
    found = limit_get(tx, name, customer_key)
    assert found is not None, name
    return limit_alter(tx, found.limit_id, terms, actor=actor)


def limit_alter(
    tx: Tx, limit_id: int, terms: LimitSettings, *, actor: str
) -> tuple[LimitRow, GrantResult]:
    """Change a limit's terms.

    More capacity is granted immediately. With less capacity, current holders keep their slots and
    nothing is granted until enough of them are free.
    """
    limit = limit_lock(tx, limit_id)
    if limit is None:
        raise NotFound("limit", limit_id)
    keeps = terms.is_adaptive and terms.capacity is not None and limit.learned is not None
    learned = None
    if keeps and limit.learned is not None and terms.capacity is not None:
        learned = limit.learned if limit.learned < terms.capacity else None
    bucket = limit.bucket(tx.now())
    params = {
        **_params(limit.name, terms, limit.customer_key, actor, is_declared=True),
        "limit_id": limit_id,
        "learned": learned,
        "level": None if bucket is None or terms.rate is None else bucket.level_at(tx.now()),
        "level_at": None if bucket is None or terms.rate is None else tx.now(),
    }
    tx.run("limit_alter", params)
    _journal(tx, limit, "altered", actor, detail=_detail(terms, before=limit.terms))
    changed = limit_lock(tx, limit_id)
    assert changed is not None, limit_id
    capacity_note(tx, limit, changed, "set", tx.now())
    return changed, grant_locked(tx, changed, NO_REQUESTS)


def limit_renew_many(tx: Tx, held: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Renew (lease, token) pairs. Return the new expiry of those still held; others are lost."""
    return {row[0]: row[1] for row in tx.rows("limit_renew_many", batch=sorted(held))}


def ticket_renew_many(tx: Tx, broker: str, limit_ids: Sequence[int]) -> set[str]:
    """Renew a broker's tickets. Requests that are missing from the result no longer wait."""
    params = {"broker": broker, "ids": sorted(limit_ids), "ticket_us": TICKET_US}
    return {row[0] for row in tx.rows("ticket_renew_many", params)}


def ticket_snooze(
    tx: Tx, limit_id: int, request: str, seconds_us: int, calls: Sequence[str] = ()
) -> bool:
    """Keep a run's ticket while no process waits for it. Return False if it has none.

    calls: those of the run that retry quota errors and are in progress; the others have ended.
    """
    limit_lock(tx, limit_id)  # a concurrent grant could go to a process that stops waiting
    params = {"limit_id": limit_id, "request": request, "ticket_us": seconds_us + TICKET_US}
    kept = first(tx.rows("ticket_snooze", params))
    if kept is not None:
        quota_retry_drop(tx, kept[0], calls)
    return kept is not None


def requeued_wake(tx: Tx, run_ids: Sequence[int]) -> bool:
    """Make requeued runs due immediately if their slot was granted in the meantime."""
    return bool(run_ids) and bool(tx.rows("limit_run_granted", {"ids": list(run_ids)}))


def limit_quota(
    tx: Tx, limit_id: int, lease: LeaseRow | None = None, *, holder: str = ""
) -> QuotaResult:
    """Record that the protected resource rejected a call because of a quota; lowers an adaptive
    capacity.

    lease: the slot under which it happened. Errors of one epoch lower the capacity only once.
    """
    limit = limit_lock(tx, limit_id)
    if limit is None:
        raise NotFound("limit", limit_id)
    errors, now = one(tx.rows("limit_quota_put", {"limit_id": limit_id}))
    tx.run("limit_note_put", {
        "limit_id": limit_id, "customer": limit.customer_key, "outcome": "quota",
        "holder": holder if lease is None else lease.holder,
        "run_id": None if lease is None else lease.run_id,
        "token": None if lease is None else lease.token,
        "weight": 1 if lease is None else lease.weight,
        "asked_at": None if lease is None else lease.requested_at,
        "since_at": None if lease is None else lease.since_at,
    })  # fmt: skip
    since = None if lease is None else lease.since_at
    is_new = rules.is_new_quota_error(now, since_at=since, lowered_at=limit.learned_at)
    if not limit.is_adaptive or limit.capacity is None or not is_new:
        return QuotaResult(int(errors), is_new, limit.effective, limit.learned)
    learned = rules.lowered_capacity(limit.capacity, limit.learned, limit.floor)
    tx.run("limit_learn", {"limit_id": limit_id, "learned": learned, "learned_at": now})
    changed = limit._replace(learned=learned, learned_at=now)
    capacity_note(tx, limit, changed, "quota", now)
    return QuotaResult(int(errors), True, changed.effective, learned)


def quota_retry_get(tx: Tx, run_id: int, call: str) -> tuple[int, int] | None:
    """Return (failed attempts, microseconds since its start) of a call before its run was snoozed.

    None if the run was not snoozed in this call.
    """
    row = first(tx.rows("quota_retry_get", {"run_id": run_id, "call": call}))
    return None if row is None else (int(row[0]), max(0, int(row[1])))


def quota_retry_put(tx: Tx, run_id: int, call: str, tries: int, spent_us: int) -> None:
    """Record how far a call has come whose run is snoozed."""
    params = {"run_id": run_id, "call": call, "tries": tries, "spent_us": spent_us}
    tx.run("quota_retry_put", params)


def quota_retry_drop(tx: Tx, run_id: int, calls: Sequence[str]) -> None:
    """Forget the calls of a run, except those in progress: the others have ended."""
    tx.run("quota_retry_drop", {"run_id": run_id, "calls": list(calls)})


def limit_force_release(
    tx: Tx, lease_id: int, *, actor: str, why: str, customer_key: CustomerKey | None = None
) -> tuple[LeaseRow, GrantResult]:
    """Take a slot from its holder and grant it to the next in the queue; journaled with a reason.

    The holder is notified at its next renewal. Until then it may continue, with a stale token.
    """
    row = first(tx.rows("limit_lease_find", {"lease_id": lease_id}))
    limit = None if row is None else limit_lock(tx, LeaseRow._make(row).limit_id)
    if row is None or limit is None or customer_key not in (None, limit.customer_key):
        raise NotFound("lease", lease_id)
    lease = LeaseRow._make(row)
    params = {"limit_id": limit.limit_id, "outcome": "forced"}
    if not tx.rows("limit_release_many", params, [(lease.lease_id, lease.token)]):
        raise NotFound("lease", lease_id)
    detail = json.dumps({"lease_id": lease_id, "holder": lease.holder, "weight": lease.weight})
    _journal(tx, limit, "forced", actor, why=why, detail=detail, token=lease.token)
    return lease, grant_locked(tx, limit, NO_REQUESTS)


def limit_lapsed(tx: Tx, n: int) -> list[int]:
    """Return limits with expired leases or tickets; each needs its own grant transaction."""
    return [row[0] for row in tx.rows("limit_lapsed", {"n": n})]


def limit_trim(tx: Tx, n: int) -> int:
    """Trim each limit's history and changes to the newest, and delete retries of ended runs.

    Return the number of deleted rows.
    """
    deleted = 0
    for overlong, trim in (
        ("limit_history_overlong", "limit_history_trim"),
        ("limit_capacities_overlong", "limit_capacities_trim"),
    ):
        for row in tx.rows(overlong, {"kept": HISTORY_TRIM, "n": n}):
            deleted += tx.run(trim, {"limit_id": row[0], "kept": HISTORY_KEPT})
    return deleted + tx.run("quota_retries_trim", {"n": n})


def _params(
    name: str, terms: LimitSettings, customer_key: CustomerKey, actor: str, *, is_declared: bool
) -> dict[str, Any]:
    return {
        "customer": customer_key,
        "name": name,
        "capacity": terms.capacity,
        "is_adaptive": terms.is_adaptive,
        "floor": terms.floor,
        "lease_us": terms.lease_us,
        "grace_us": terms.grace_us,
        "queue_max": terms.queue_max,
        "rate": terms.rate,
        "burst": terms.burst,
        "is_declared": is_declared,
        "actor": actor,
    }


def _detail(terms: LimitSettings, before: LimitSettings | None = None) -> str:
    return json.dumps(
        {
            name: getattr(terms, name)
            for name in rules.LIMIT_SETTING_NAMES
            if before is None or getattr(terms, name) != getattr(before, name)
        },
        sort_keys=True,
    )


def _journal(
    tx: Tx,
    limit: LimitRow,
    action: str,
    actor: str,
    *,
    why: str | None = None,
    detail: str | None = None,
    token: int | None = None,
) -> None:
    entry = Entry(
        "limit", limit.limit_id, limit.customer_key or None, action, actor, token=token, why=why,
        detail=detail,
    )  # fmt: skip
    journal_append_many(tx, [entry])
