"""The state that invariants check: the hot tables as plain records, read by direct queries.

Only the harness reads this way; the product uses named statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.db.sqlite.store import SqliteStore


class LiveRunRow(NamedTuple):
    """A row of the run queue, with the columns that invariants check."""

    run_id: int
    customer: int
    config_id: int | None
    processor: int
    pool: int
    slot: int
    scheduled_time: int
    priority: int
    level: int
    fair_rank: int
    state: str
    admission: int
    session_id: int | None
    claimed_by: str | None
    claimed_at: int | None
    started_at: int | None
    token: int
    lapses: int
    attempt: int
    max_execution_us: int
    ordering_key: str | None
    parent_run_id: int | None
    root_run_id: int | None
    stales: int
    trigger_source: str
    cancel_requested_at: int | None
    created_at: int
    flow_id: int | None
    expires_us: int | None


class CustomerShare(NamedTuple):
    """The settings of a customer, and whether they are still being applied to live runs."""

    stride: int
    concurrency: int | None
    is_reranked: int
    is_capped: int


class FlowStateRow(NamedTuple):
    """A flow of a config."""

    flow_id: int
    config_id: int
    slot: int
    is_ordered: int
    ended_at: int | None
    state: str
    trigger_source: str


class EndedRunRow(NamedTuple):
    """A row of the history, with the columns that invariants check."""

    run_id: int
    config_id: int | None
    processor: int
    slot: int
    final_state: str
    token: int
    attempt: int
    lapses: int
    was_retried: int
    is_dead: int
    error_type: str | None
    finished_at: int
    started_at: int | None
    claimed_by: str | None
    trigger_source: str
    flow_id: int | None
    parent_run_id: int | None
    item_key: str
    first_source: str | None
    """Trigger source of its flow; without a flow, of its first attempt."""


class ScheduleRow(NamedTuple):
    """The schedule row of a config."""

    config_id: int
    cadence: int
    next_run_time: int
    evaluated_to: int


class ConfigSnapshot(NamedTuple):
    """The fields of a config that invariants need."""

    config_id: int
    customer: int
    pipeline: int
    overlap: str
    catch_up: str
    is_active: int
    retry: str | None


class JournalChange(NamedTuple):
    """A journal entry about a run."""

    seq: int
    run_id: int
    action: str
    from_state: str | None
    to_state: str | None
    token: int | None


class LedgerRow(NamedTuple):
    """Occurrences that did not start."""

    config_id: int
    first_at: int
    last_at: int
    occurrences: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The hot state after one commit."""

    now: int
    runs: dict[int, LiveRunRow]
    sessions: dict[int, int]
    leases: dict[int, tuple[int, int]]
    fair_ranks: dict[tuple[int, int, int], int]
    shares: dict[int, CustomerShare]
    counters: dict[str, int]
    schedules: dict[int, ScheduleRow]
    configs: dict[int, ConfigSnapshot]
    failures: dict[int, int]
    failed_flows: dict[int, int]
    flows: dict[int, FlowStateRow]
    pauses: frozenset[tuple[str, int]]


_RUNS = """SELECT run_id, customer, config_id, processor, pool, slot, scheduled_time, priority,
    level, pass, state, admission, session_id, claimed_by, claimed_at, started_at, token, lapses,
    attempt, max_execution_us, ordering_key, parent_run_id, root_run_id, stales, trigger_source,
    cancel_requested_at, created_at, flow_id, expires_us FROM runs"""
_ENDED = """SELECT run_id, config_id, processor, slot, final_state, token, attempt, lapses,
    was_retried, is_dead, error_type, finished_at, started_at, claimed_by, trigger_source,
    flow_id, parent_run_id, item_key, coalesce(
        (SELECT w.trigger_source FROM flows w WHERE w.flow_id = history.flow_id),
        (SELECT f.trigger_source FROM history f WHERE f.run_id = history.root_run_id),
        trigger_source)
    FROM history WHERE run_id IN (SELECT value FROM json_each(?))"""


_QUERIES = {
    "sessions": "SELECT session_id, until_at FROM sessions",
    "leases": "SELECT subject, token, until_at FROM leases WHERE kind = 'run'",
    "failures": "SELECT config_id, consecutive_failures FROM config_health",
    "failed_flows": "SELECT config_id, failed_flow FROM config_health",
    "fair_ranks": "SELECT pool, level, customer, fair_rank FROM fair_ranks",
    "shares": "SELECT customer, stride, concurrency, rerank_after IS NULL, capped_at IS NULL"
    " FROM customer_settings",
    "schedules": "SELECT config_id, cadence, next_run_time, evaluated_to FROM schedule",
    "configs": "SELECT config_id, customer, pipeline, overlap, catch_up, is_active, retry"
    " FROM configs",
    "pauses": "SELECT scope, subject FROM pauses",
    "flows": "SELECT flow_id, config_id, slot, is_ordered, ended_at, state, trigger_source"
    " FROM flows WHERE config_id > 0",
}
# Tables, by the name prefixes of statements that write them (tests/simulation/test_harness.py
# compares both); all others are always read.
_GROUPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("schedule_", "config_", "pause_", "load_spread"), ("schedules", "configs", "pauses")),
    (("flow_", "flows_"), ("flows",)),
    (
        (
            "run_insert",
            "run_admit",
            "run_rerank",
            "rerank_",
            "fair_clock",
            "schedule_start",
            "queue_",
            "cap_",
            "customer_settings",
        ),
        ("fair_ranks", "shares"),
    ),
    (
        ("session_", "sessions_clip", "lease_", "probe_lease_", "run_finish"),
        ("sessions", "leases"),
    ),
    (
        ("run_finish", "config_health", "flow_end_"),
        ("failures", "failed_flows"),
    ),
)


class DirectReader:
    """Reads the simulation's store without going through the product."""

    def __init__(self, store: SqliteStore) -> None:
        self._connection = store._writer

    def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Return the rows of any query."""
        return self._connection.execute(sql, params).fetchall()

    def changes(self) -> int:
        """Return a number that grows with every changed row."""
        return self._connection.total_changes

    def snapshot(
        self, now: int, last: Snapshot | None = None, statements: Sequence[str] = ()
    ) -> Snapshot:
        """Return the hot state; reuse tables that statements since `last` cannot have changed."""
        values: dict[str, Any] = {}
        for writers, columns in _GROUPS:
            if last is None or any(name.startswith(writers) for name in statements):
                values |= {column: self._read(column) for column in columns}
            else:
                values |= {column: getattr(last, column) for column in columns}
        return Snapshot(
            now=now,
            runs={r[0]: LiveRunRow._make(r) for r in self.rows(_RUNS)},
            counters=dict(self.rows("SELECT name, value FROM counters")),
            **values,
        )

    def _read(self, column: str) -> Any:
        found = self.rows(_QUERIES[column])
        if column == "schedules":
            return {row[0]: ScheduleRow._make(row) for row in found}
        if column == "configs":
            return {row[0]: ConfigSnapshot._make(row) for row in found}
        if column == "flows":
            return {row[0]: FlowStateRow._make(row) for row in found}
        if column == "shares":
            return {row[0]: CustomerShare._make(row[1:]) for row in found}
        if column == "fair_ranks":
            return {row[:3]: row[3] for row in found}
        if column == "leases":
            return {row[0]: (row[1], row[2]) for row in found}
        return frozenset(found) if column == "pauses" else dict(found)

    def journal_after(self, seq: int) -> list[JournalChange]:
        """Return new entries about runs, oldest first."""
        found = self.rows(
            "SELECT seq, subject, action, from_state, to_state, token FROM journal"
            " WHERE seq > ? AND kind = 'run' ORDER BY seq",
            seq,
        )
        return [JournalChange._make(row) for row in found]

    def ended(self, run_ids: list[int]) -> dict[int, EndedRunRow]:
        """Return ended runs by id."""
        if not run_ids:
            return {}
        return {r[0]: EndedRunRow._make(r) for r in self.rows(_ENDED, str(run_ids))}

    def ledger_after(self, rowid: int) -> tuple[list[LedgerRow], int]:
        """Return new ledger rows and the row id to continue from."""
        found = self.rows(
            "SELECT rowid, config_id, slot_from, slot_to, slots, outcome FROM ledger"
            " WHERE rowid > ? ORDER BY rowid",
            rowid,
        )
        mark = found[-1][0] if found else rowid
        return [LedgerRow._make(row[1:]) for row in found], mark
