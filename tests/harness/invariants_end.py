"""Checks over a whole history: journal, seals, audit, sums, dead letters."""

from __future__ import annotations

from typing import Any

from penstock.audit.store.journal import seals_verify
from penstock.db.sqlite.store import SqliteStore
from penstock.monitoring.verify.client import JournalVerifier
from penstock.testing.simulate.snapshots import DirectReader
from penstock.testing.simulate.violation import Violation

# Each query finds violations: it must return no rows.
OFFENDERS = {
    "journal: created other than once": """
        SELECT h.run_id FROM history h LEFT JOIN journal j ON j.subject = h.run_id
            AND j.kind = 'run' AND j.action = 'created'
        GROUP BY h.run_id HAVING count(j.seq) <> 1""",
    "journal: ended other than once": """
        SELECT h.run_id FROM history h LEFT JOIN journal j ON j.subject = h.run_id
            AND j.kind = 'run' AND j.action = 'ended' AND j.to_state = h.final_state
            AND j.token = h.token
        GROUP BY h.run_id HAVING count(j.seq) <> 1""",
    "journal: ended without history": """
        SELECT j.subject FROM journal j WHERE j.kind = 'run' AND j.action = 'ended'
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.run_id = j.subject)""",
    "dead letters: one per dead run": """
        SELECT h.run_id FROM history h LEFT JOIN dead_letters d
            ON d.kind = 'run' AND d.subject = h.run_id
        WHERE (d.subject IS NOT NULL) <> h.is_dead""",
    "chains: attempts without gaps": """
        SELECT h.run_id FROM history h LEFT JOIN history p ON p.run_id = h.parent_run_id
        WHERE h.trigger_source = 'retry' AND (p.run_id IS NULL OR p.attempt + 1 <> h.attempt)""",
    "history: times in order": """
        SELECT run_id FROM history WHERE finished_at < created_at
            OR (started_at IS NOT NULL AND (finished_at < started_at OR started_at < created_at))
            OR (claimed_at IS NOT NULL AND claimed_at < scheduled_time)""",
    "sums: as many as history": """
        SELECT final_state FROM (
            SELECT final_state, count(*) AS n FROM history GROUP BY 1
            UNION ALL SELECT final_state, -sum(runs) FROM run_sums GROUP BY 1)
        GROUP BY final_state HAVING sum(n) <> 0""",
    "cohorts: as many as history": """
        SELECT slot FROM (
            SELECT h.slot, h.processor, h.final_state = 'COMPLETED' AS completed, h.is_dead AS dead
            FROM history h
            WHERE h.config_id IS NOT NULL AND h.flow_id IS NULL AND h.trigger_message_id IS NULL
                AND NOT h.was_retried
                AND NOT EXISTS (SELECT 1 FROM history a WHERE a.parent_run_id = h.run_id)
                AND NOT EXISTS (SELECT 1 FROM runs a WHERE a.parent_run_id = h.run_id)
            UNION ALL SELECT slot, processor, -completed, -dead FROM cohort_sums)
        WHERE slot >= (SELECT max(at) FROM journal) - 86400000000
        GROUP BY slot, processor HAVING sum(completed) <> 0 OR sum(dead) <> 0""",
    "days: as many as folded": """
        SELECT customer FROM (
            SELECT customer, count(*) AS n FROM history
            WHERE finished_at <= (SELECT value FROM counters WHERE name = 'folded_to') GROUP BY 1
            UNION ALL SELECT customer, -sum(runs) FROM customer_days GROUP BY 1)
        GROUP BY customer HAVING sum(n) <> 0""",
    "ledger: ranges of one config overlap": """
        SELECT a.config_id FROM ledger a JOIN ledger b ON a.config_id = b.config_id
            AND a.rowid < b.rowid AND a.slot_from <= b.slot_to AND b.slot_from <= a.slot_to""",
    "ledger: contains an occurrence that started": """
        SELECT h.run_id FROM history h JOIN ledger l ON l.config_id = h.config_id
            AND h.slot BETWEEN l.slot_from AND l.slot_to
        WHERE h.trigger_source = 'scheduler'""",
    "progress of ended runs": "SELECT run_id FROM progress",
}


def check_end(store: SqliteStore, peek: DirectReader, announced: list[tuple[Any, ...]]) -> int:
    """Check a history that has become idle; return the number of checks."""
    for name, sql in OFFENDERS.items():
        found = peek.rows(sql)
        if found:
            raise Violation(name, f"{found[:3]}")
    assert announced, "the outbox was never used"
    _, entries, problem = store.read(seals_verify)
    if problem is not None:
        raise Violation("seals", problem)
    (total,) = peek.rows("SELECT count(*) FROM journal")[0]
    if entries != total:
        raise Violation("seals", f"{entries} of {total} entries are sealed")
    verified = JournalVerifier(store).run()
    if verified.problem_count:
        raise Violation("verify", f"{verified.problems[:3]}")
    return len(OFFENDERS) + 2
