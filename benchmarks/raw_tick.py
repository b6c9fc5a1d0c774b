"""The limit of the tick: hand-written SQL that writes the same rows, one batch per transaction.

It advances schedule rows and customers' fair ranks, and writes runs and journal entries. Everything
else that Penstock does (overlap, pauses, catch-up, ordering keys, flows, the ledger) is omitted.
"""

from __future__ import annotations

from benchmarks.raw import Raw

NEXT = 86_400_000_000

POSTGRES = """
WITH due AS MATERIALIZED (
    SELECT s.config_id, s.next_run_time AS slot, c.customer, c.priority, c.max_execution_us,
        c.sla_us
    FROM (SELECT config_id, next_run_time FROM schedule WHERE next_run_time <= db_now()
          ORDER BY next_run_time, config_id LIMIT %(n)s FOR UPDATE SKIP LOCKED) s
    JOIN configs c USING (config_id)
), moved AS (
    UPDATE schedule s SET next_run_time = d.slot + %(next)s, evaluated_to = d.slot
    FROM due d WHERE s.config_id = d.config_id
), turns AS (
    INSERT INTO turns (pool, level, customer, pass)
    SELECT 1, priority, customer, count(*) FROM due GROUP BY priority, customer
    ON CONFLICT (pool, level, customer) DO UPDATE SET pass = turns.pass + excluded.pass
), made AS (
    INSERT INTO runs (customer, config_id, processor, pool, slot, scheduled_time, priority, level,
        pass, state, admission, state_at, attempt, max_execution_us, sla_us, trigger_source,
        created_at)
    SELECT customer, config_id, 1, 1, slot, slot, priority, priority,
        row_number() OVER (PARTITION BY customer), 'PENDING', 0, db_now(), 1, max_execution_us,
        sla_us, 'scheduler', db_now()
    FROM due RETURNING run_id, customer, created_at
), noted AS (
    INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
    SELECT created_at, 'run', run_id, customer, 'created', 'scheduler', 'PENDING', 'scheduler'
    FROM made
)
SELECT count(*) FROM made
"""

SQLITE = (
    "CREATE TEMP TABLE IF NOT EXISTS due (config_id integer PRIMARY KEY, slot integer, "
    "customer integer, priority integer, max_execution_us integer, sla_us integer)",
    "DELETE FROM temp.due",
    """
    INSERT INTO temp.due
    SELECT s.config_id, s.next_run_time, c.customer, c.priority, c.max_execution_us, c.sla_us
    FROM (SELECT config_id, next_run_time FROM schedule WHERE next_run_time <= :now
          ORDER BY next_run_time, config_id LIMIT :n) AS s
    CROSS JOIN configs c ON c.config_id = s.config_id
    """,
    """
    UPDATE schedule SET next_run_time = next_run_time + :next, evaluated_to = next_run_time
    WHERE config_id IN (SELECT config_id FROM temp.due)
    """,
    """
    INSERT INTO turns (pool, level, customer, pass)
    SELECT 1, priority, customer, count(*) FROM temp.due WHERE TRUE GROUP BY priority, customer
    ON CONFLICT (pool, level, customer) DO UPDATE SET pass = turns.pass + excluded.pass
    """,
    "CREATE TEMP TABLE IF NOT EXISTS before (run_id integer)",
    "DELETE FROM temp.before",
    "INSERT INTO temp.before SELECT coalesce(max(run_id), 0) FROM runs",
    """
    INSERT INTO runs (customer, config_id, processor, pool, slot, scheduled_time, priority, level,
        pass, state, admission, state_at, attempt, max_execution_us, sla_us, trigger_source,
        created_at)
    SELECT customer, config_id, 1, 1, slot, slot, priority, priority,
        row_number() OVER (PARTITION BY customer), 'PENDING', 0, :now, 1, max_execution_us, sla_us,
        'scheduler', :now
    FROM temp.due ORDER BY config_id
    """,
    """
    INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
    SELECT created_at, 'run', run_id, customer, 'created', 'scheduler', 'PENDING', 'scheduler'
    FROM runs WHERE run_id > (SELECT run_id FROM temp.before)
    """,
)


def tick_postgres(raw: Raw, batch: int) -> int:
    """Start everything that is due; return the number of runs."""
    total = 0
    while True:
        count = int(raw.rows(POSTGRES, {"n": batch, "next": NEXT})[0][0])
        if not count:
            return total
        total += count


def tick_sqlite(raw: Raw, batch: int, now: int) -> int:
    """Start everything that is due; return the number of runs."""
    params = {"n": batch, "now": now, "next": NEXT}
    total = 0
    while True:
        raw.run("BEGIN IMMEDIATE")
        for text in SQLITE:
            raw.run(text, params)
        count = int(raw.rows("SELECT count(*) FROM temp.due")[0][0])
        raw.run("COMMIT")
        if not count:
            return total
        total += count
