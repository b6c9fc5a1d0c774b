"""Read models: metrics of a customer, the overview, table sizes.

Closed periods are read from pre-aggregated tables, so that a query costs the same with ten million
ended runs as with ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.clock import DAY, HOUR
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first, one
from penstock.monitoring.customer_health import CustomerFacts

LAST: Final = "\U0010ffff"
OUTCOMES: Final = 14
WEEK: Final = 7 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMetricsRow:
    """A customer's ended runs with one provider."""

    provider: str
    runs: int
    completed: int
    duration_us: int
    sla_kept: int
    failed: int
    sla_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """Counts of live runs, and of runs that ended since midnight UTC."""

    pending: int
    ready: int
    later: int
    paused: int
    blocked: int
    claimed: int
    running: int
    oldest_ready_at: int | None
    completed_today: int
    failed_today: int
    expired_today: int
    cancelled_today: int
    sla_breaches_today: int
    duration_us_today: int
    blocked_flows: int
    waiting_flows: int


class CustomerState(NamedTuple):
    """The facts of a customer, its last outcomes oldest first, and sums of the last week."""

    facts: CustomerFacts
    outcomes: str
    week: Sequence[int]


def customer_metrics(
    tx: Tx, customer_key: CustomerKey, occurrence_from: int, occurrence_to: int
) -> list[ProviderMetricsRow]:
    """Return sums per provider of the runs whose scheduled time is in the window."""
    day_from = -(-occurrence_from // DAY) * DAY
    day_to = occurrence_to // DAY * DAY
    if day_to < day_from:
        day_from = day_to = occurrence_from
    folded = first(tx.rows("counter_get", {"name": "folded_to"}))
    params = {
        "customer": customer_key,
        "occurrence_from": occurrence_from,
        "occurrence_to": occurrence_to,
        "day_from": day_from,
        "day_to": day_to,
        "folded_to": folded[0] if folded else 0,
    }
    return [
        ProviderMetricsRow(
            provider=row[0],
            runs=int(row[1]),
            completed=int(row[2]),
            duration_us=int(row[3]),
            sla_kept=int(row[4]),
            failed=int(row[5]),
            sla_runs=int(row[6]),
        )
        for row in tx.rows("customer_metrics", params)
    ]


def overview(tx: Tx, customer_key: CustomerKey | None = None) -> OverviewRow:
    """Count live runs and runs that ended today, for all customers or for one."""
    is_one = customer_key is not None
    params: dict[str, int | None] = {"customer": customer_key} if is_one else {}
    in_hand = tx.rows("overview_live_customer" if is_one else "overview_live", params)
    live: dict[tuple[str, int], int] = {}
    oldest: int | None = None
    late = 0
    for state, admission, count, due, breaches in in_hand:
        live[state, admission] = count
        late += int(breaches)
        if admission == 0:
            oldest = due
    today = tx.now() // DAY * DAY
    assert today % HOUR == 0
    params |= {"since": today}
    over = tx.rows("overview_ended_customer" if is_one else "overview_ended", params)
    ended = {row[0]: row for row in over}
    counts = {state: int(row[1]) for state, row in ended.items()}
    blocked_flows, waiting_flows = one(tx.rows("overview_flows", {"customer": customer_key}))
    pending = {a: live.get(("PENDING", a), 0) for a in (0, 1, 2, 3, 4, 5)}
    return OverviewRow(
        pending=sum(pending.values()),
        ready=pending[0],
        later=pending[1],
        paused=pending[2],
        blocked=pending[3] + pending[4] + pending[5],
        claimed=live.get(("CLAIMED", 9), 0),
        running=live.get(("RUNNING", 9), 0),
        oldest_ready_at=oldest,
        completed_today=counts.get("COMPLETED", 0),
        failed_today=counts.get("FAILED", 0) + counts.get("TIMEOUT", 0),
        expired_today=counts.get("EXPIRED", 0),
        cancelled_today=counts.get("CANCELLED", 0),
        sla_breaches_today=late + sum(int(row[3]) for row in ended.values()),
        duration_us_today=int(ended["COMPLETED"][2]) if "COMPLETED" in ended else 0,
        blocked_flows=int(blocked_flows),
        waiting_flows=int(waiting_flows),
    )


def store_sizes(tx: Tx) -> dict[str, int]:
    """Return approximate row counts of the tables."""
    return {row[0]: int(row[1]) for row in tx.rows("store_sizes")}


def customers_page(
    tx: Tx, names: tuple[str, str], limit: int, *, is_troubled: bool
) -> list[tuple[int, str]]:
    """Return (key, name) of customers by name: all, or those with a config in trouble.

    names: the name to continue after, and the beginning of the names.
    """
    after, prefix = names
    params = {"after": after, "first": prefix, "last": prefix + LAST, "limit": limit}
    statement = "customers_troubled" if is_troubled else "customers_named"
    return [(row[0], row[1]) for row in tx.rows(statement, params)]


def customers_health(tx: Tx, keys: Sequence[int]) -> dict[int, CustomerState]:
    """Return what the health of customers is derived from, by their keys."""
    if not keys:
        return {}
    ids = {"ids": list(keys)}
    since = tx.now() // DAY * DAY - WEEK
    weeks = {row[0]: row[1:] for row in tx.rows("customer_week", {**ids, "since": since})}
    found = tx.rows("customer_outcomes", {**ids, "n": OUTCOMES})
    ended: dict[int, str | None] = {row[0]: row[1] for row in found}
    made = {}
    for row in tx.rows("customer_facts", ids):
        facts = CustomerFacts._make(row)
        facts = facts._replace(is_paused=bool(facts.is_paused), active=int(facts.active))
        week = [int(value) for value in weeks.get(row[0], (0, 0, 0, 0))]
        made[row[0]] = CustomerState(facts, (ended.get(row[0]) or "")[::-1], week)
    return made
