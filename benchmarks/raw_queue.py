"""The limit of the queue: hand-written batches on one connection, over Penstock's tables.

Enqueue writes runs, journal and fair ranks; a claim takes a batch; complete deletes it and writes
history and journal. Everything else that Penstock does (verdicts, retries, health, sums, parameters
of a config, ordering keys, pauses) is omitted.
"""

from __future__ import annotations

from benchmarks.load import CUSTOMERS, wall_now
from benchmarks.raw import PostgresRaw, Raw, SqliteRaw

ENQUEUE_PG = """
WITH made AS (
    INSERT INTO runs (customer, processor, pool, slot, scheduled_time, priority, level, pass,
        state, admission, state_at, attempt, max_execution_us, trigger_source, created_at)
    SELECT customer, 1, 1, db_now(), db_now(), 5, 5, ord, 'PENDING', 0, db_now(), 1, 3600000000,
        'manual', db_now()
    FROM unnest(%(customers)s::bigint[]) WITH ORDINALITY AS b(customer, ord)
    RETURNING run_id, customer, created_at
), turns AS (
    INSERT INTO turns (pool, level, customer, pass)
    SELECT 1, 5, customer, count(*) FROM unnest(%(customers)s::bigint[]) AS b(customer)
    GROUP BY customer
    ON CONFLICT (pool, level, customer) DO UPDATE SET pass = turns.pass + excluded.pass
), noted AS (
    INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
    SELECT created_at, 'run', run_id, customer, 'created', 'raw', 'PENDING', 'manual' FROM made
)
SELECT count(*) FROM made
"""
CLAIM_PG = """
UPDATE runs SET state = 'RUNNING', admission = 9, session_id = 1, claimed_by = 'raw',
    claimed_at = db_now(), started_at = db_now(), state_at = db_now(), token = nextval('token_seq')
WHERE run_id = ANY(ARRAY(
    SELECT run_id FROM runs WHERE admission = 0 AND pool = 1
    ORDER BY level DESC, pass, run_id LIMIT %(n)s FOR UPDATE SKIP LOCKED))
RETURNING run_id, token
"""
COMPLETE_PG = """
WITH gone AS (
    DELETE FROM runs r USING unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS x(run_id, token)
    WHERE r.run_id = x.run_id AND r.token = x.token AND r.state = 'RUNNING' RETURNING r.*
), kept AS (
    INSERT INTO history (run_id, customer, config_id, processor, slot, scheduled_time, priority,
        created_at, claimed_at, claimed_by, started_at, finished_at, final_state, status, token,
        attempt, lapses, was_retried, is_dead, parameters, trigger_source)
    SELECT run_id, customer, config_id, processor, slot, scheduled_time, priority, created_at,
        claimed_at, claimed_by, started_at, db_now(), 'COMPLETED', 'SUCCESS', token, attempt,
        lapses, FALSE, FALSE, parameters, trigger_source FROM gone
), noted AS (
    INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, token)
    SELECT db_now(), 'run', run_id, customer, 'ended', 'raw', state, 'COMPLETED', token FROM gone
)
SELECT count(*) FROM gone
"""

ENQUEUE_LITE = (
    """
    INSERT INTO runs (customer, processor, pool, slot, scheduled_time, priority, level, pass,
        state, admission, state_at, attempt, max_execution_us, trigger_source, created_at)
    SELECT customer, 1, 1, :now, :now, 5, 5, ord, 'PENDING', 0, :now, 1, 3600000000, 'manual', :now
    FROM temp.given
    """,
    """
    INSERT INTO turns (pool, level, customer, pass)
    SELECT 1, 5, customer, count(*) FROM temp.given WHERE TRUE GROUP BY customer
    ON CONFLICT (pool, level, customer) DO UPDATE SET pass = turns.pass + excluded.pass
    """,
    """
    INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
    SELECT created_at, 'run', run_id, customer, 'created', 'raw', 'PENDING', 'manual'
    FROM runs WHERE run_id > :before
    """,
)
PICK_LITE = """
INSERT INTO temp.picked (run_id) SELECT run_id FROM runs WHERE admission = 0 AND pool = 1
ORDER BY level DESC, pass, run_id LIMIT :n
"""
CLAIM_LITE = """
UPDATE runs SET state = 'RUNNING', admission = 9, session_id = 1, claimed_by = 'raw',
    claimed_at = :now, started_at = :now, state_at = :now, token = :token + k.rank
FROM temp.picked k WHERE runs.run_id = k.run_id
"""
COMPLETE_LITE = (
    """
    INSERT INTO history (run_id, customer, config_id, processor, slot, scheduled_time, priority,
        created_at, claimed_at, claimed_by, started_at, finished_at, final_state, status, token,
        attempt, lapses, was_retried, is_dead, parameters, trigger_source)
    SELECT r.run_id, customer, config_id, processor, slot, scheduled_time, priority, created_at,
        claimed_at, claimed_by, started_at, :now, 'COMPLETED', 'SUCCESS', r.token, attempt, lapses,
        FALSE, FALSE, parameters, trigger_source
    FROM temp.done x CROSS JOIN runs r ON r.run_id = x.run_id
    WHERE r.token = x.token AND r.state = 'RUNNING'
    """,
    """
    INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, token)
    SELECT :now, 'run', r.run_id, customer, 'ended', 'raw', state, 'COMPLETED', r.token
    FROM temp.done x CROSS JOIN runs r ON r.run_id = x.run_id
    """,
    "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM temp.done)",
)


def enqueue(raw: Raw, n: int, batch: int) -> None:
    """Enqueue n runs of all customers, one batch per transaction."""
    if isinstance(raw, SqliteRaw):
        raw.run("CREATE TEMP TABLE IF NOT EXISTS given (ord integer PRIMARY KEY, customer integer)")
    for start in range(0, n, batch):
        customers = [1 + (i * 7_919) % CUSTOMERS for i in range(start, min(start + batch, n))]
        if isinstance(raw, PostgresRaw):
            raw.planned(ENQUEUE_PG, {"customers": customers})
        elif isinstance(raw, SqliteRaw):
            raw.run("BEGIN IMMEDIATE")
            raw.run("DELETE FROM temp.given")
            raw.many("INSERT INTO temp.given (customer) VALUES (?)", ((c,) for c in customers))
            before = raw.rows("SELECT coalesce(max(run_id), 0) FROM runs")[0][0]
            for text in ENQUEUE_LITE:
                raw.run(text, {"now": wall_now(), "before": before})
            raw.run("COMMIT")


def drain(raw: Raw, batch: int) -> int:
    """Claim and complete batches until the queue is empty; return the number of runs."""
    if isinstance(raw, PostgresRaw):
        return _drain_postgres(raw, batch)
    assert isinstance(raw, SqliteRaw)
    return _drain_sqlite(raw, batch)


def _drain_postgres(raw: PostgresRaw, batch: int) -> int:
    total = 0
    while True:
        rows = raw.rows(CLAIM_PG, {"n": batch})
        if not rows:
            return total
        params = {"ids": [row[0] for row in rows], "tokens": [row[1] for row in rows]}
        total += int(raw.planned(COMPLETE_PG, params)[0][0])


def _drain_sqlite(raw: SqliteRaw, batch: int) -> int:
    raw.run("CREATE TEMP TABLE IF NOT EXISTS picked (rank integer PRIMARY KEY, run_id integer)")
    raw.run("CREATE TEMP TABLE IF NOT EXISTS done (run_id integer PRIMARY KEY, token integer)")
    total = 0
    while True:
        raw.run("BEGIN IMMEDIATE")
        raw.run("DELETE FROM temp.picked")
        raw.run(PICK_LITE, {"n": batch})
        raw.run(CLAIM_LITE, {"now": wall_now(), "token": total})
        rows = raw.rows(
            "SELECT r.run_id, r.token FROM temp.picked k CROSS JOIN runs r ON r.run_id = k.run_id"
        )
        raw.run("COMMIT")
        if not rows:
            return total
        raw.run("BEGIN IMMEDIATE")
        raw.run("DELETE FROM temp.done")
        raw.many("INSERT INTO temp.done VALUES (?, ?)", rows)
        for text in COMPLETE_LITE:
            raw.run(text, {"now": wall_now()})
        raw.run("COMMIT")
        total += len(rows)
