"""Reads and writes of usage: folds of ended runs, budgets, pools, anomalies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import DAY, MINUTE, Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, first
from penstock.runs.store.admission import BUDGET
from penstock.schedules.store.configs import Change, audit_append
from penstock.schedules.store.pauses import PauseChange, pause_begin, pause_end
from penstock.slos.store import committed_until, next_slice, position_set, position_take
from penstock.usage.budget import is_stop_due, period_of
from penstock.usage.profile import Sample, added, outliers
from penstock.usage.rows import AnomalyRow, BudgetRow, ProfiledRun
from penstock.usage.scaling import WINDOW_US, Load

LAG_US: Final = 15_000_000
"""Delay after which ended runs are counted; longer while an older transaction is open."""
SLICE_US: Final = 10 * MINUTE
FIRST_US: Final = 31 * DAY
COMPLETED_MAX: Final = 5_000
"""Maximum number of completed runs per slice that are compared with their profiles; the newest
ones.
"""
COMPLETED_FULL: Final = 200
"""The same maximum for a slice that ended because of its number of runs; a pass has several such
slices.
"""
KEPT_US: Final = 90 * DAY
BUDGETS_MAX: Final = 10_000
POSITION: Final = "usage_to"
_ANY: Final = {"scope": None, "subject": None}


def usage_fold(tx: Tx) -> bool:
    """Add one slice of ended runs to sums and profiles. Return whether more are left."""
    after = position_take(tx, POSITION, tx.now() - FIRST_US)
    until = committed_until(tx, LAG_US)
    if until <= after:
        return False
    found = next_slice(tx, after, until, SLICE_US)
    if found is None:
        position_set(tx, POSITION, until)
        return False
    end = found.end
    params = {"after": after, "until": end}
    tx.run("usage_fold", params)
    tx.run("usage_pools_fold", params)
    most = COMPLETED_FULL if found.is_full else COMPLETED_MAX
    rows = tx.rows("usage_completed", {**params, "n": most})
    profiles_add(tx, [ProfiledRun._make(row) for row in reversed(rows)])
    position_set(tx, POSITION, end)
    return end < until


def profiles_add(tx: Tx, runs: Sequence[ProfiledRun]) -> None:
    """Compare runs with the profiles of their processors, and add them to the profiles."""
    if not runs:
        return
    keys = sorted({(run.processor_key, run.customer_key, run.mode) for run in runs})
    known = {
        (processor, customer, mode): [Sample(*sample) for sample in json.loads(samples)]
        for processor, customer, mode, samples in tx.rows("profiles_read", batch=keys)
    }
    found: dict[tuple[int, int, str, str], tuple[Any, ...]] = {}
    for run in runs:
        key = (run.processor_key, run.customer_key, run.mode)
        before = known.get(key, [])
        arrival = max(0, run.at - run.slot)
        new = Sample(run.at, max(0, run.at - run.started_at), arrival, run.records)
        for measure in ("duration", "records", "arrival"):
            found.pop((*key, measure), None)
        for seen in outliers(before, new):
            found[(*key, seen.measure)] = (
                *key, seen.measure, run.run_id, seen.value, *seen.range, seen.samples, run.at,
            )  # fmt: skip
        known[key] = added(before, new)
    batch = [(*key, json.dumps(known[key], separators=(",", ":"))) for key in keys]
    tx.run("profiles_put", batch=batch)
    touched = set(keys)
    ended = [
        (processor, customer, mode, measure)
        for processor, customer, mode, measure in tx.rows("anomalies_open", {"n": 10_000})
        if (processor, customer, mode) in touched
        and (processor, customer, mode, measure) not in found
    ]
    if ended:
        tx.run("anomalies_end", batch=sorted(ended))
    if found:
        tx.run("anomalies_add", batch=[found[key] for key in sorted(found)])


def usage_prune(tx: Tx) -> None:
    """Delete old sums, profiles and anomalies."""
    tx.run("usage_prune", {"kept_us": KEPT_US})


def budget_list(
    tx: Tx, customer: CustomerKey | None = None, n: int = BUDGETS_MAX
) -> list[BudgetRow]:
    """Return budgets with their use in the current period."""
    now = tx.now()
    params = {
        "customer": customer, "n": n,
        "day_at": period_of("day", now)[0], "month_at": period_of("month", now)[0],
    }  # fmt: skip
    rows = [BudgetRow._make(row) for row in tx.rows("budget_list", params)]
    return [row._replace(used=float(row.used), runs=int(row.runs)) for row in rows]


def budget_put(tx: Tx, row: BudgetRow, actor: str) -> None:
    """Create or change a budget."""
    params = {
        "scope": row.scope, "subject": row.subject, "period": row.period, "amount": row.amount,
        "warn_percent": row.warn_percent, "is_hard": row.is_hard, "actor": actor,
    }  # fmt: skip
    tx.run("budget_put", params)


def budget_remove(tx: Tx, row: BudgetRow, actor: str) -> None:
    """Delete a budget, and resume the runs that it stopped unless another one stops them."""
    _lock(tx)
    own = row[:3]
    rows = [one for one in budget_list(tx) if one[:2] == own[:2]]
    gone = [one._replace(is_hard=False) if one[:3] == own else one for one in rows]
    _enforce(tx, gone, _paused_by(tx, row), actor, "the budget was removed")
    tx.run("budget_remove", {"scope": row.scope, "subject": row.subject, "period": row.period})


def budgets_enforce(tx: Tx) -> tuple[int, int]:
    """Hold back runs of used-up budgets, and resume those that may run. Return how many each.

    Looks at the pauses too: a subject with a used-up budget is never left without one.
    """
    _lock(tx)
    stopped = resumed = 0
    owners = {(scope, subject): who for scope, subject, who in tx.rows("budget_pauses", _ANY)}
    of_subject: dict[tuple[str, int], list[BudgetRow]] = {}
    for row in budget_list(tx):
        of_subject.setdefault((row.scope, row.subject), []).append(row)
    for key, rows in of_subject.items():
        more, fewer = _enforce(tx, rows, owners.get(key), BUDGET, "its budget allows it again")
        stopped, resumed = stopped + more, resumed + fewer
    return stopped, resumed


def budget_lift(tx: Tx, row: BudgetRow, actor: str, reason: str) -> None:
    """Allow a budget to be exceeded until the period ends.

    The runs that it stopped are resumed unless another budget stops them.
    """
    _lock(tx)
    until = period_of(row.period, tx.now())[1]
    rows = [one for one in budget_list(tx) if one[:2] == row[:2]]
    lifted = [one._replace(lifted_until=until) if one[:3] == row[:3] else one for one in rows]
    _mark(tx, row, None, until)
    _enforce(tx, lifted, _paused_by(tx, row), actor, reason or "the budget was lifted")


def budgets_resumed(tx: Tx, change: PauseChange, paused_by: str) -> None:
    """Follow a caller who resumed a customer or pipeline.

    If budgets had paused it, they are lifted until their periods end. A used-up one takes over from
    a person who had.
    """
    customer = CustomerKey(change.subject) if change.scope == "customer" else None
    if paused_by == BUDGET:
        _lock(tx)
    now = tx.now()
    due = [
        row
        for row in budget_list(tx, customer)
        if row[:2] == (change.scope, change.subject) and _is_due(row, now)
    ]
    if paused_by == BUDGET:
        for row in due:
            _mark(tx, row, None, period_of(row.period, now)[1])
            budget_record_change(tx, row, change.actor, "budget_lifted", change.reason)
    elif due:
        pause_begin(tx, _pause(_longest(due)))


def budget_record_change(tx: Tx, row: BudgetRow, actor: str, action: str, reason: str) -> None:
    """Record a change to a budget in the journal, and in the audit trail of its customer."""
    customer = CustomerKey(row.subject) if row.scope == "customer" else None
    entry = Entry(row.scope, row.subject, customer, action, actor, why=reason or None)
    journal_append_many(tx, [entry])
    if customer is not None:
        audit_append(tx, [Change(customer, action.upper(), None, actor, reason)])


def stop_reason(row: BudgetRow) -> str:
    """Return why a budget holds runs back, and how to lift it."""
    return (
        f"the budget of {row.scope} {row.name} is used up: {row.used:,.2f} of {row.amount:,.2f} "
        f"per {row.period}; penstock budgets lift {row.scope} {row.name}"
    )


def pool_load(tx: Tx, pool: str | None, n: int) -> list[tuple[str, Load]]:
    """Return the load of pools by name."""
    rows = tx.rows("pool_load", {"pool": pool, "window_us": WINDOW_US, "n": n})
    return [(name, Load(*map(int, found))) for name, *found in rows]


def anomaly_list(
    tx: Tx,
    *,
    customer: CustomerKey | None,
    pipeline: PipelineKey | None,
    measure: str | None,
    only_open: bool,
    after: Sequence[int] | None,
    n: int,
) -> list[AnomalyRow]:
    """Return anomalies, newest first, after a position."""
    before, before_id = after or (2**62, 2**62)
    params = {
        "customer": customer, "pipeline": pipeline, "measure": measure, "only_open": only_open,
        "before": before, "before_id": before_id, "n": n,
    }  # fmt: skip
    return [AnomalyRow._make(row) for row in tx.rows("anomaly_list", params)]


def _mark(tx: Tx, row: BudgetRow, stopped_at: Micros | None, lifted_until: Micros | None) -> None:
    params = {
        "scope": row.scope, "subject": row.subject, "period": row.period,
        "stopped_at": stopped_at, "lifted_until": lifted_until,
    }  # fmt: skip
    tx.run("budget_mark", params)


def _enforce(
    tx: Tx, rows: Sequence[BudgetRow], paused_by: str | None, actor: str, reason: str
) -> tuple[int, int]:
    """Stop or resume one subject as its budgets require; a person's pause stays.

    Return how many budgets stopped runs, and how many no longer do.
    """
    now = tx.now()
    due = [row for row in rows if _is_due(row, now)]
    new = [row for row in due if row.stopped_at is None]
    over = [row for row in rows if row.stopped_at is not None and not _is_due(row, now)]
    for row in new:
        _mark(tx, row, now, None)
    for row in over:
        _mark(tx, row, None, row.lifted_until)
    if not due and paused_by == BUDGET:
        pause_end(tx, PauseChange(*_about(rows[0]), actor, reason), only=BUDGET)
        tx.wake(["admit"])
    elif due and (paused_by is None or (paused_by == BUDGET and (new or over))):
        # A pause of their own is written again: its reason names one budget.
        pause_begin(tx, _pause(_longest(due)))
    return len(new), len(over)


def _is_due(row: BudgetRow, now: Micros) -> bool:
    return bool(row.is_hard) and is_stop_due(row.used, row.amount, row.lifted_until, now)


def _longest(rows: Sequence[BudgetRow]) -> BudgetRow:
    """Return the budget whose period ends last."""
    return max(rows, key=lambda row: row.period == "month")


def _paused_by(tx: Tx, row: BudgetRow) -> str | None:
    found = first(tx.rows("budget_pauses", {"scope": row.scope, "subject": row.subject}))
    return None if found is None else str(found[2])


def _lock(tx: Tx) -> None:
    """Let one transaction at a time compare budgets with pauses."""
    position_take(tx, "budgets_lock", 0)


def _about(row: BudgetRow) -> tuple[str, int, CustomerKey | None]:
    return row.scope, row.subject, CustomerKey(row.subject) if row.scope == "customer" else None


def _pause(row: BudgetRow) -> PauseChange:
    return PauseChange(*_about(row), BUDGET, stop_reason(row))
