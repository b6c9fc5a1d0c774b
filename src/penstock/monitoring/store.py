"""Read models: metrics of a customer, the overview, table sizes.

Closed periods are read from pre-aggregated tables, so that the cost of a query does not grow with
the number of ended runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.access.store.customers import CustomerRow, customer_rows
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Row, Tx, first, one
from penstock.monitoring.customer_health import RANKS, CustomerFacts, LongExecution, health_of
from penstock.monitoring.records import CustomerOrder, HealthWord

LAST: Final = "\U0010ffff"
OUTCOMES: Final = 14
FAILURES_READ: Final = 200
"""Maximum number of failures that are searched for the last one of each cause."""
ENDED_READ: Final = 20_000
"""Maximum number of runs of history that are read for the last failures."""
WEEK: Final = 7 * DAY
TODAY_READ: Final = 5_000
"""Maximum number of runs of a customer that are counted in history, besides the counters."""
DEAD_COUNTED: Final = 1_000
BLOCK: Final = 2_000
"""Maximum number of customers read at a time if a filter excludes most of them."""
CUSTOMERS_READ: Final = 10_000
"""Maximum number of customers that one page reads to find those that match."""


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
    """Facts, settings, last outcomes (oldest first), and sums of a customer's last runs."""

    facts: CustomerFacts
    settings: CustomerRow
    outcomes: str
    week: Sequence[int]
    today: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerFilter:
    """Which customers to list: one, or those that have a config with all of the given values."""

    customer_key: CustomerKey | None = None
    prefix: str = ""
    health: HealthWord | None = None
    pipeline_key: PipelineKey | None = None
    provider: str | None = None
    domain: str | None = None

    @property
    def is_by_config(self) -> bool:
        """Whether the configs of each customer are read."""
        return not (self.pipeline_key is None and self.provider is None and self.domain is None)


class ListedCustomer(NamedTuple):
    """A customer and its position in a list: the number and the name that order the list."""

    customer_key: int
    name: str
    place: int
    fits: bool


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


def last_failures(tx: Tx, customer_key: CustomerKey | None, n: int) -> list[int]:
    """Return the last failed run of each processor and error of the last week, newest first.

    Runs that are not in the counters yet are read from history: those of the last minute, then
    those before, if there are too few. Both reads are bounded.
    """
    now = tx.now()
    row = first(tx.rows("counter_get", {"name": "analytics_runs_to"}))
    folded_to = now - WEEK if row is None else max(int(row[0]), now - WEEK)
    name, owner = "failures_recent", dict[str, int]()
    if customer_key is not None:
        name, owner = "failures_recent_customer", {"customer": customer_key}
    found: dict[tuple[int, str], int] = {}
    for after in (max(folded_to, now - MINUTE), folded_to):
        params = {"after": after, "n": FAILURES_READ, "most": ENDED_READ, **owner}
        _keep_first(found, tx.rows(name, params))
        if len(found) >= n:
            return list(found.values())[:n]
    counted = {"customer": customer_key or 0, "since": now // DAY * DAY - WEEK, "n": FAILURES_READ}
    _keep_first(found, tx.rows("failures_counted", counted))
    return list(found.values())[:n]


def _keep_first(found: dict[tuple[int, str], int], rows: Sequence[Row]) -> None:
    """Add runs of causes that are not known yet, by processor and error."""
    for processor, error_type, run_id in rows:
        found.setdefault((processor, error_type), run_id)


def customers_page(
    tx: Tx, wanted: CustomerFilter, order: CustomerOrder, after: tuple[int, str], limit: int
) -> tuple[list[ListedCustomer], tuple[int, str] | None]:
    """Return matching customers, in an order, and where to continue; None at the end.

    after: the position and the name to continue after. At most `CUSTOMERS_READ` customers are read.
    """
    found: list[ListedCustomer] = []
    read, block = 0, limit
    while read < CUSTOMERS_READ:
        rows = _customers_block(tx, wanted, order, after, block)
        for row in rows:
            after = (row.place, row.name)
            if row.fits:
                found.append(row)
            if len(found) == limit:
                return found, after
        if len(rows) < block:
            return found, None
        read += block
        block = max(block, min(2 * block, BLOCK))
    return found, after


def _customers_block(
    tx: Tx, wanted: CustomerFilter, order: CustomerOrder, after: tuple[int, str], most: int
) -> list[ListedCustomer]:
    """Return the next customers in an order, and whether they match."""
    rank = None if wanted.health is None else RANKS[wanted.health]
    params = {
        "after": after[1], "first": wanted.prefix, "last": wanted.prefix + LAST, "most": most,
        "health_rank": rank, "is_by_config": wanted.is_by_config, "pipeline": wanted.pipeline_key,
        "provider": wanted.provider, "domain": wanted.domain,
    }  # fmt: skip
    if wanted.customer_key is not None:
        rows = tx.rows("customer_alone", {**params, "customer": wanted.customer_key})
    elif order == "next":
        rows = tx.rows("customers_by_next_start", {**params, "after_place": after[0]})
    elif order == "trouble" or rank is not None:
        ranks = (0, RANKS["well"]) if rank is None else (rank, rank)
        place = max(after[0], ranks[0])
        bounds = {"after_place": place, "rank_from": ranks[0], "rank_to": ranks[1]}
        rows = tx.rows("customers_by_health", {**params, **bounds})
    else:
        rows = tx.rows("customers_by_name", params)
    return [ListedCustomer(row[0], row[1], row[2], bool(row[3])) for row in rows]


def customers_counted(tx: Tx, most: int) -> dict[HealthWord, int]:
    """Return the number of customers by stored health; each count stops at `most`."""
    counts: dict[HealthWord, int] = {}
    for health, rank in RANKS.items():
        found = tx.rows("customers_with_health", {"health_rank": rank, "most": most})
        counts[health] = int(one(found)[0])
    return counts


def customers_health(tx: Tx, keys: Sequence[int]) -> dict[int, CustomerState]:
    """Return the facts that determine the health of customers, and their figures, by key."""
    if not keys:
        return {}
    ids = {"ids": list(keys)}
    today = tx.now() // DAY * DAY
    weeks = {row[0]: row[1:] for row in tx.rows("customer_week", {**ids, "since": today - WEEK})}
    found = tx.rows("customer_outcomes", {**ids, "n": OUTCOMES})
    ended: dict[int, str | None] = {row[0]: row[1] for row in found}
    settings = customer_rows(tx, keys)
    running = {row[0]: int(row[1]) for row in tx.rows("customer_running", ids)}
    folded = first(tx.rows("counter_get", {"name": "analytics_runs_to"}))
    tail = {"folded_to": folded[0] if folded else 0, "since": today, "most": TODAY_READ}
    counted = {row[0]: int(row[1]) for row in tx.rows("customer_today", {**ids, **tail})}
    return {
        key: CustomerState(
            facts=facts,
            settings=settings[key],
            outcomes=(ended.get(key) or "")[::-1],
            week=[int(value) for value in weeks.get(key, (0, 0, 0, 0))],
            today=counted.get(key, 0),
            running=running.get(key, 0),
        )
        for key, facts in customer_facts(tx, keys, DEAD_COUNTED).items()
    }


def customer_facts(tx: Tx, keys: Sequence[int], most: int) -> dict[int, CustomerFacts]:
    """Return the facts that determine the health of customers; count up to `most` dead letters."""
    ids = {"ids": list(keys)}
    slow: dict[int, LongExecution] = {}
    for key, name, took, usual_most in tx.rows("customer_slow", ids):
        slow.setdefault(key, LongExecution(name, took, usual_most))
    found = {}
    for row in tx.rows("customer_facts", {**ids, "most": most}):
        facts = CustomerFacts._make((*row, slow.get(row[0])))
        found[row[0]] = facts._replace(is_paused=bool(facts.is_paused), active=int(facts.active))
    return found


def customer_keys(tx: Tx, after: int, n: int) -> list[int]:
    """Return the next keys of customers after a key."""
    return [row[0] for row in tx.rows("customer_keys", {"after": after, "n": n})]


def customers_suspect(tx: Tx, since: int, n: int) -> list[int]:
    """Return keys of customers whose health has probably changed, or with dead letters `since`."""
    ranks = {"at_risk": RANKS["at_risk"], "paused": RANKS["paused"]}
    return [row[0] for row in tx.rows("customers_suspect", {**ranks, "since": since, "n": n})]


def customers_outdated(tx: Tx, keys: Sequence[int]) -> list[tuple[int, int, int | None]]:
    """Return (key, rank, next start) of those customers whose stored health is outdated."""
    rows = tx.rows("customers_stored", {"ids": list(keys)})
    stored = {row[0]: (row[1], row[2]) for row in rows}
    fresh = {
        key: (RANKS[health_of(facts)[0]], facts.next_run_time)
        for key, facts in customer_facts(tx, keys, 1).items()
    }
    return [(key, *values) for key, values in fresh.items() if values != stored.get(key)]


def customer_health_put(tx: Tx, rows: Sequence[tuple[int, int, int | None]]) -> int:
    """Store (key, rank, next start) of customers; return how many. Locked customers are skipped."""
    ids = {"ids": [row[0] for row in rows]}
    free = {row[0] for row in tx.rows("customers_lock_free", ids)}
    batch = [row for row in rows if row[0] in free]
    return tx.run("customer_health_put", batch=batch) if batch else 0
