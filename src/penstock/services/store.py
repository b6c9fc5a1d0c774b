"""Upkeep: future partitions, aggregation, retention. Safe in any number of replicas.

Aggregation keeps an exact horizon: runs that ended before it are in the sums, later ones are read
from history. The horizon stays ten minutes behind, longer than any transaction may take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.audit.store.kept import HISTORY, RESOLVED, kept_record
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.db.store import Tx, first, one
from penstock.shipping.store import prunable_until

AGGREGATE_LAG_US = 10 * MINUTE
CHUNK = 5_000
IDLE_LIMIT_US = 7 * DAY
"""How long an unused limit that runs created is kept."""
COHORTS_US = 2 * DAY
"""How long the sums of an occurrence are kept."""
COHORT_SUMS = 50_000
"""Maximum number of occurrence deltas that one step aggregates, newest first."""
SLOT_BEHIND_MIN = 100_000
"""Transactions by which the slot of a connected standby may be behind, before doctor names it."""
CHANGES_US = 7 * DAY
"""How long alert changes that no alert sender has read are kept."""


def durability_warnings(tx: Tx) -> list[str]:
    """Return server settings that are off and risk losing committed transactions."""
    return [str(name) for (name,) in tx.rows("durability_warnings")]


class SnapshotHolder(NamedTuple):
    """A session, a prepared transaction or a replication slot that keeps dead rows."""

    kind: str
    """session, prepared or slot."""
    name: str
    """Process id of the session, or the name of the transaction or slot."""
    program: str
    user: str
    state: str
    """State of the session; of a slot, active or unused."""
    age_us: int
    """How long the transaction has been open; 0 for a slot, whose age is not known."""
    behind: int
    """How many transactions have begun since."""
    log_bytes: int
    """Size of the write-ahead log that a slot keeps."""
    end: str
    """The statement that ends it."""


class RunsInProgress(NamedTuple):
    """All held runs: how many, the first one, since when, and when the last one was claimed."""

    now: int
    runs: int
    first_run_id: int | None
    since_at: int | None
    claimed_at: int | None


def snapshot_holders(tx: Tx, older_us: int) -> list[SnapshotHolder]:
    """Return what holds the oldest snapshots, if these are older than a time."""
    values = {"older_us": older_us, "behind_min": SLOT_BEHIND_MIN}
    return [SnapshotHolder._make(row) for row in tx.rows("snapshot_holders", values)]


def clock_lead(tx: Tx) -> int:
    """Return how far recorded times are ahead of the clock; 0 unless the clock was set back."""
    now, newest = one(tx.rows("newest_times"))
    return max(0, int(newest) - int(now))


def sessions_clip(tx: Tx) -> list[str]:
    """Reset leases that were renewed ahead of the clock to now; return the names of their
    processes.
    """
    return [str(name) for _, name in sorted(tx.rows("sessions_clip"))]


def runs_in_progress(tx: Tx) -> RunsInProgress:
    """Return the runs that all workers hold."""
    return RunsInProgress._make(one(tx.rows("runs_in_progress")))


class DeadRows(NamedTuple):
    """A table with dead rows, and the first transaction whose dead rows must be kept, if any.

    changed: the rows that were updated or deleted so far.
    """

    table: str
    dead: int
    changed: int
    horizon: int | None


def dead_rows(tx: Tx, dead_min: int) -> list[DeadRows]:
    """Return the tables with many dead rows, most first."""
    return [DeadRows._make(row) for row in tx.rows("dead_rows", {"dead_min": dead_min})]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long ended records are kept, in microseconds."""

    history_us: int = 365 * DAY
    journal_us: int = 365 * DAY
    ledger_us: int = 365 * DAY
    flows_us: int = 7 * DAY
    settled_us: int = 32 * DAY
    """Settled deliveries: one day longer than the longest message retention."""
    dedupe_us: int = 7 * DAY
    """Dedupe ids of publishers."""
    logs_us: int = 365 * DAY
    """Decisions, the log tables of flows, generation numbers, reported execution ids, breakers."""
    alerts_us: int = 90 * DAY
    """Resolved alerts."""
    dead_letters_us: int = 90 * DAY
    """Dead letters that were replayed or discarded; open ones are kept as long as history."""
    interventions_us: int = 90 * DAY
    """Resolved interventions."""
    overrides_us: int = 90 * DAY
    """Overrides, counted from their expiry."""
    behind_sink: str | None = None
    """Audit sink that must have rows of the journal and the logs before they are deleted."""
    entities_us: int = 90 * DAY
    """Reports of changed entities; a processor that missed deleted ones receives everything."""


PruneStep = Callable[[Tx, Retention], dict[str, int]]


def partitions_ensure(tx: Tx, weeks: int = 4) -> int:
    """Create the partitions of the coming weeks. Return how many were missing."""
    rows = tx.rows("partitions_ensure", {"weeks": weeks})
    return int(rows[0][0]) if rows else 0


def _shipped(tx: Tx, retention: Retention) -> Mapping[str, int]:
    """Return the time up to which the audit sink has each log, if rows are kept until then."""
    return {} if retention.behind_sink is None else prunable_until(tx, retention.behind_sink)


def _prune_history(tx: Tx, retention: Retention) -> dict[str, int]:
    now = tx.now()
    before = min(now - retention.history_us, _shipped(tx, retention).get("history", now))
    tx.run("counter_raise", {"name": "history_pruned_to", "value": before})
    kept_record(tx, {HISTORY: retention.history_us, RESOLVED: retention.dead_letters_us})
    return {"history": tx.run("history_prune", {"before": before, "n": CHUNK})}


def _prune_messages(tx: Tx, retention: Retention) -> dict[str, int]:  # noqa: ARG001 - a step
    return {"messages": tx.run("bus_messages_prune", {"before": tx.now(), "n": CHUNK})}


def _prune_settled(tx: Tx, retention: Retention) -> dict[str, int]:
    before = tx.now() - retention.settled_us
    return {"settled": tx.run("bus_settled_prune", {"before": before, "n": CHUNK})}


def _prune_executions(tx: Tx, retention: Retention) -> dict[str, int]:
    before = tx.now() - retention.logs_us
    until = min(before, _shipped(tx, retention).get("execution_log", before))
    return {"executions": tx.run("execution_log_prune", {"before": until, "n": CHUNK})}


def _prune_others(tx: Tx, retention: Retention) -> dict[str, int]:
    """Delete rows of tables without partitions."""
    now = tx.now()
    chunk = {"n": CHUNK}
    old = {"before": now - retention.history_us, **chunk}
    shipped = _shipped(tx, retention)
    flows_before = min(now - retention.flows_us, shipped.get("phase_completion_log", now))
    failed_before = now - retention.settled_us
    entities_before = now - retention.entities_us
    return {
        "run_logs": tx.run("run_logs_prune", old),
        "run_actions": tx.run("run_actions_prune", old),
        "artifacts": tx.run("run_artifacts_prune", old),
        "sub_flows": tx.run("sub_flows_prune", old),
        "backfills": tx.run("backfills_prune", old),
        "states": tx.run("run_states_prune", old),
        "ledger": tx.run("ledger_prune", {"before": now - retention.ledger_us, **chunk}),
        "flows": tx.run("flows_prune", {"before": flows_before, **chunk}),
        "cohorts": tx.run("cohort_sums_prune", {"before": now - COHORTS_US, **chunk}),
        "requests": tx.run("requests_prune"),
        "limits": tx.run("queue_limits_prune", {"before": now - IDLE_LIMIT_US, **chunk}),
        "delivery_failures": tx.run("bus_failures_prune", {"before": failed_before, **chunk}),
        "snapshots": tx.run("bus_snapshots_prune", chunk),
        "marks": tx.run("bus_dedupe_prune", {"before": now - retention.dedupe_us, **chunk}),
        "entities": tx.run("entity_changes_prune", {"before": entities_before, **chunk}),
        **_prune_logs(tx, now - retention.logs_us, shipped),
        **_prune_closed(tx, now, retention),
    }


def _prune_logs(tx: Tx, before: int, shipped: Mapping[str, int]) -> dict[str, int]:
    until = {"before": before, "n": CHUNK}

    def behind(log: str) -> dict[str, int]:
        return {**until, "before": min(before, shipped.get(log, before))}

    return {
        "decisions": tx.run("decisions_prune", until),
        "run_gates": tx.run("run_gates_prune", until),
        "phase_log": tx.run("phase_log_prune", behind("phase_completion_log")),
        "check_log": tx.run("check_log_prune", behind("dependency_check_log")),
        "generations": tx.run("generations_prune", until),
        "completion_ids": tx.run("completion_ids_prune", until),
        "breakers": tx.run("breakers_prune", until),
    }


def _prune_closed(tx: Tx, now: int, retention: Retention) -> dict[str, int]:
    """Delete alerts, dead letters, interventions and overrides past their retention."""
    chunk = {"n": CHUNK}
    return {
        "alerts": tx.run("alerts_prune", {"before": now - retention.alerts_us, **chunk}),
        "past_alerts": tx.run(
            "past_alerts_prune",
            {"before": now - max(retention.logs_us, retention.history_us), **chunk},
        ),
        "silences": tx.run("silences_prune", {"before": now - retention.alerts_us, **chunk}),
        "alert_changes": tx.run("alert_changes_prune", {"before": now - CHANGES_US, **chunk}),
        "notices": tx.run("alert_notices_prune", {"before": now - retention.alerts_us, **chunk}),
        "notice_items": tx.run("alert_notice_items_prune", chunk),
        "dead_letters": tx.run(
            "dead_letters_prune", {"before": now - retention.dead_letters_us, **chunk}
        ),
        "open_dead_letters": tx.run(
            "dead_letters_open_prune", {"before": now - retention.history_us, **chunk}
        ),
        "interventions": tx.run(
            "interventions_prune", {"before": now - retention.interventions_us, **chunk}
        ),
        "overrides": tx.run("overrides_prune", {"before": now - retention.overrides_us, **chunk}),
    }


def _prune_journal(tx: Tx, retention: Retention) -> dict[str, int]:
    """Delete entries of blocks sealed before the retention period; unsealed entries are kept.

    From then on, verification only checks the chain of those blocks (`journal_pruned_to`).
    """
    before = tx.now() - retention.journal_us
    before = min(before, _shipped(tx, retention).get("journal", before))
    unsealed = first(tx.rows("journal_unsealed_at", {"before": before}))
    first_at = None if unsealed is None else unsealed[0]
    until = before if first_at is None else min(before, first_at - AGGREGATE_LAG_US)
    tx.run("counter_raise", {"name": "journal_pruned_to", "value": before})
    return {"journal": tx.run("journal_prune", {"before": until, "n": CHUNK})}


PRUNE_STEPS: Final[Sequence[PruneStep]] = (
    _prune_history,
    _prune_journal,
    _prune_messages,
    _prune_settled,
    _prune_executions,
    _prune_others,
)
"""Steps of the pruner, each in its own transaction, because dropping a partition locks its table.
"""


def prune(tx: Tx, retention: Retention, steps: Sequence[PruneStep] = PRUNE_STEPS) -> dict[str, int]:
    """Delete rows past their retention. Return deleted rows by kind; dropped partitions count 0."""
    removed: dict[str, int] = {}
    for step in steps:
        removed |= step(tx, retention)
    return removed


def aggregate(tx: Tx) -> int:
    """Aggregate deltas and closed periods into sums. Return by how much the horizon moved."""
    now = tx.now()
    soon = now + HOUR
    rows, groups = one(tx.rows("sums_aggregatable", {"before": soon}))
    if rows > 2 * groups:
        tx.run("sums_aggregate", {"before": soon, "n": 100_000})
    rows, groups = one(tx.rows("cohort_sums_aggregatable", {"n": COHORT_SUMS}))
    if rows > 2 * groups:
        tx.run("cohort_sums_aggregate", {"n": COHORT_SUMS})
    rows, groups = one(tx.rows("bus_sums_aggregatable"))
    if rows > 2 * groups:
        tx.run("bus_sums_aggregate", {"n": 100_000})
    horizon = int(one(tx.rows("aggregate_horizon"))[0])
    until = now - AGGREGATE_LAG_US
    if until <= horizon:
        return 0
    tx.run("history_aggregate", {"after": horizon, "until": until})
    return until - horizon
