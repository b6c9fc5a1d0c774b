-- Runs: insertion with admission, claim, start, release. The hot path of Penstock.

-- fragment: is_paused
-- Whether a pause covers row `g` (customer, pipeline, config_id); evaluated once if there are none.
(EXISTS (SELECT 1 FROM pauses) AND EXISTS (SELECT 1 FROM pauses q WHERE q.scope = 'all'
    OR (q.scope = 'customer' AND q.subject = g.customer)
    OR (q.scope = 'pipeline' AND q.subject = g.pipeline)
    OR (q.scope = 'config' AND q.subject = g.config_id)))

-- fragment: admission_of_given
-- Blocked behind its ordering key, paused, due later, waiting for limits, or ready. Blocked comes
-- first: a resume would otherwise let a run overtake its predecessor, while a blocked run is
-- checked for pauses when it is admitted.
CASE
    WHEN g.ordering_key IS NOT NULL AND ({{earlier_in_batch}}
        OR (SELECT o.run_id FROM runs o WHERE o.ordering_key = g.ordering_key LIMIT 1)
            IS NOT NULL) THEN 3
    WHEN {{is_paused}} THEN 2
    WHEN g.scheduled_time > g.at THEN 1
    WHEN g.is_limited OR {{is_capped}} THEN 4
    ELSE 0
END

-- fragment: is_capped
-- Whether the customer of row `g` has a maximum number of runs: then its runs wait for that limit.
g.customer IN (SELECT s.customer FROM customer_settings s WHERE s.concurrency IS NOT NULL)

-- fragment: stride
-- What a run of row `g` adds to its customer's fair rank: a million divided by the weight, which is
-- 1 without settings.
coalesce((SELECT s.stride FROM customer_settings s WHERE s.customer = g.customer), 1000000)

-- fragment: earlier_in_batch [postgres]
g.ord IN (SELECT ord FROM behind)

-- fragment: earlier_in_batch [sqlite]
-- differs because an index lookup is cheaper here than sorting the batch.
EXISTS (SELECT 1 FROM temp.given e WHERE e.ordering_key = g.ordering_key AND e.ord < g.ord)

-- fragment: insert_columns
customer, config_id, processor, pool, flow_id, partition, mode, slot, scheduled_time,
priority, level, pass, state, admission, state_at, attempt, max_execution_us, sla_us,
ordering_key, parameters, correlation_id, parent_run_id, root_run_id, stales,
trigger_source, trigger_message_id, created_at, item_key, item, expires_us

-- fragment: fair_rank_base [postgres]
-- The fair rank that row `g` continues from: its customer's last one, locked, or the clock. Rows
-- `g` are sorted, so that two transactions lock the same customers in the same order. The rank is
-- part of the key, and the highest is read first: while another session holds a snapshot, dead
-- versions of the row stay in the index, all of them below it.
greatest(coalesce(g.clock, 0), coalesce((SELECT t.fair_rank FROM fair_ranks t
    WHERE t.pool = g.pool AND t.level = g.priority AND t.customer = g.customer
    ORDER BY t.fair_rank DESC LIMIT 1 FOR UPDATE), 0))

-- fragment: fair_clock [postgres]
-- The fair clock of the pool and level of row `g`; NULL before the first claim.
(SELECT k.fair_rank FROM fair_ranks k WHERE k.pool = g.pool AND k.level = g.priority
    AND k.customer = 0 ORDER BY k.fair_rank DESC LIMIT 1)

-- fragment: clock_read [postgres]
-- The same from the CTE `clocks`, which has a row for each pool and level of a batch.
(SELECT k.clock FROM clocks k WHERE k.pool = g.pool AND k.priority = g.priority)

-- fragment: fair_rank_seen [postgres]
-- The last fair rank of row `g` as of the statement's snapshot. An update finds the row by it, or by
-- a higher rank that another transaction has committed since, without reading dead versions.
(SELECT t.fair_rank FROM fair_ranks t WHERE t.pool = g.pool AND t.level = g.priority
    AND t.customer = g.customer ORDER BY t.fair_rank DESC LIMIT 1)

-- fragment: fair_ranks_move [postgres]
-- Reads the CTE `seated` and stores the last rank assigned to each customer.
ranked AS MATERIALIZED (
    SELECT g.*, {{fair_rank_seen}} AS seen
    FROM (SELECT s.pool, s.priority, s.customer, max(s.seat) AS last FROM seated s
        WHERE s.admission = 0 GROUP BY s.pool, s.priority, s.customer
        ORDER BY s.pool, s.priority, s.customer) AS g
), moved AS (
    UPDATE fair_ranks t SET fair_rank = greatest(t.fair_rank, k.last) FROM ranked k
    WHERE t.pool = k.pool AND t.level = k.priority AND t.customer = k.customer
        AND t.fair_rank >= k.seen
), added AS (
    INSERT INTO fair_ranks (pool, level, customer, fair_rank)
    SELECT k.pool, k.priority, k.customer, k.last FROM ranked k WHERE k.seen IS NULL
    ON CONFLICT DO NOTHING
)

-- fragment: staged_table [sqlite]
-- Runs to be admitted. place: position in sort order, where a customer's rows are adjacent; source:
-- the row it is made from; late: its position among those that share the catch-up rate.
CREATE TEMP TABLE IF NOT EXISTS staged (
    place integer PRIMARY KEY, source integer, processor integer, pool integer, level integer,
    customer integer, admission integer, late integer);
DELETE FROM temp.staged

-- fragment: staged_order [sqlite]
-- Sort order of `staged`: admission, pool, level and customer, as columns of the SELECT that fills
-- it.
6, 3, 4, 5

-- fragment: fair_ranks_from_staged [sqlite]
-- Reads `staged` in order and advances each customer's fair rank, from its last one or the clock.
-- Sorting plus this costs half as much as numbering the rows with a window function.
CREATE TEMP TABLE IF NOT EXISTS seats (
    pool integer, level integer, customer integer, pass integer, last integer, stride integer,
    PRIMARY KEY (pool, level, customer)) WITHOUT ROWID;
DELETE FROM temp.seats;
INSERT INTO temp.seats
SELECT s.pool, s.level, s.customer,
    max(coalesce(t.fair_rank, 0), coalesce(k.fair_rank, 0)) + s.n * s.stride, s.last, s.stride
FROM (SELECT g.*, {{stride}} AS stride
      FROM (SELECT d.pool, d.level, d.customer, count(*) AS n, max(d.place) AS last
            FROM temp.staged d WHERE d.admission = 0 GROUP BY d.pool, d.level, d.customer) AS g) AS s
    LEFT JOIN fair_ranks t ON t.pool = s.pool AND t.level = s.level AND t.customer = s.customer
    LEFT JOIN fair_ranks k ON k.pool = s.pool AND k.level = s.level AND k.customer = 0;
INSERT INTO fair_ranks (pool, level, customer, fair_rank)
SELECT pool, level, customer, pass FROM temp.seats WHERE TRUE
ON CONFLICT (pool, level, customer) DO UPDATE SET fair_rank = excluded.fair_rank

-- fragment: fair_rank_join [sqlite]
temp.seats u ON p.admission = 0 AND u.pool = p.pool AND u.level = p.level
    AND u.customer = p.customer

-- fragment: fair_rank_of_staged [sqlite]
-- The fair rank of staged row `p` with rank `u`: the customer's last row has the rank just
-- assigned.
coalesce(u.pass - (u.last - p.place) * u.stride, 0)

-- fragment: tally_table [sqlite]
-- base: the highest run id used so far.
CREATE TEMP TABLE IF NOT EXISTS tally (what text PRIMARY KEY, n integer) WITHOUT ROWID;
REPLACE INTO temp.tally
SELECT 'base', coalesce(max(seq), 0) FROM main.sqlite_sequence WHERE name = 'runs'

-- fragment: rank_given [postgres]
-- Reads the CTE `given` and yields `seated`, with admission and fair ranks. Each customer's rank
-- moves once, by the strides of its runs, and its runs are numbered from there: rows are updated in
-- the order of `line`, so that two transactions lock the same customers in the same order. The ranks
-- are found by key and read by position in an array, so that no plan, however wrong its estimates,
-- joins the batch with itself. `OFFSET 0`: the admission of a run is evaluated once.
behind AS MATERIALIZED (
    SELECT b.ord FROM (
        SELECT g.ord, row_number() OVER (PARTITION BY g.ordering_key ORDER BY g.ord) AS place
        FROM given g WHERE g.ordering_key IS NOT NULL) AS b WHERE b.place > 1
), clocks AS MATERIALIZED (
    SELECT g.*, {{fair_clock}} AS clock FROM (SELECT DISTINCT pool, priority FROM given) AS g
), numbered AS MATERIALIZED (
    SELECT j.*, dense_rank() OVER (ORDER BY j.pool, j.priority, j.customer) AS line,
        count(*) FILTER (WHERE j.admission = 0)
            OVER (PARTITION BY j.pool, j.priority, j.customer ORDER BY j.ord) AS place
    FROM (SELECT g.*, {{admission_of_given}} AS admission FROM given g OFFSET 0) AS j
), ranked AS MATERIALIZED (
    SELECT g.*, coalesce({{clock_read}}, 0) AS clock, {{fair_rank_seen}} AS seen,
        {{stride}} AS stride
    FROM (SELECT j.line, j.pool, j.priority, j.customer, max(j.place) AS n FROM numbered j
        GROUP BY j.line, j.pool, j.priority, j.customer ORDER BY j.line) AS g
), moved AS (
    UPDATE fair_ranks t SET fair_rank = greatest(t.fair_rank, k.clock) + k.n * k.stride
    FROM ranked k
    WHERE t.pool = k.pool AND t.level = k.priority AND t.customer = k.customer
        AND t.fair_rank >= k.seen AND k.n > 0
    RETURNING k.line, t.fair_rank - k.n * k.stride AS base
), added AS (
    INSERT INTO fair_ranks (pool, level, customer, fair_rank)
    SELECT k.pool, k.priority, k.customer, k.clock + k.n * k.stride FROM ranked k
    WHERE k.seen IS NULL AND k.n > 0
    ON CONFLICT DO NOTHING
), bases AS MATERIALIZED (
    SELECT array_agg(b.base ORDER BY b.line) AS by_line,
        array_agg(b.stride ORDER BY b.line) AS strides
    FROM (
        SELECT u.line, max(u.base) AS base, max(u.stride) AS stride FROM (
            SELECT k.line, k.clock AS base, k.stride FROM ranked k UNION ALL
            SELECT m.line, m.base, 0 FROM moved m) AS u GROUP BY u.line) AS b
), seated AS (
    SELECT j.*, CASE WHEN j.admission <> 0 THEN 0
        ELSE (SELECT b.by_line FROM bases b)[CAST(j.line AS integer)]
            + (SELECT b.strides FROM bases b)[CAST(j.line AS integer)] * j.place END AS seat
    FROM numbered j
)

-- fragment: insert_ranked [postgres]
    INSERT INTO runs ({{insert_columns}})
    SELECT j.customer, j.config_id, j.processor, j.pool, j.flow_id, j.partition, j.mode, j.slot,
        j.scheduled_time, j.priority, j.priority, j.seat,
        'PENDING', j.admission, j.at, j.attempt, j.max_execution_us, j.sla_us, j.ordering_key,
        j.parameters, j.correlation_id, j.parent_run_id, j.root_run_id, j.stales,
        j.trigger_source, j.trigger_message_id, j.at, j.item_key, j.item, j.expires_us
    FROM seated j

-- fragment: journal_inserted [postgres]
noted AS (
    INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
    SELECT created_at, 'run', run_id, customer, 'created', :actor, 'PENDING', trigger_source
    FROM inserted
), announced AS (
    INSERT INTO outbox (topic, payload, created_at)
    SELECT 'penstock.runs', json_build_object('run_id', i.run_id, 'config_id', i.config_id,
        'customer', i.customer, 'priority', i.priority)::text, i.created_at
    FROM inserted i
    WHERE i.admission = 0 AND EXISTS (SELECT 1 FROM topics WHERE customer = 0 AND name = 'penstock.runs')
)

-- fragment: insert_given [sqlite]
-- Reads the temporary table `given` (ord counts from 1); ids follow its order.
{{tally_table}};
{{staged_table}};
INSERT INTO temp.staged (source, processor, pool, level, customer, admission)
SELECT g.ord, g.processor, g.pool, g.priority, g.customer, {{admission_of_given}}
FROM temp.given g
ORDER BY {{staged_order}}, g.ord;
{{fair_ranks_from_staged}};
INSERT INTO runs (run_id, {{insert_columns}})
SELECT b.n + g.ord, g.customer, g.config_id, g.processor, g.pool, g.flow_id, g.partition, g.mode,
    g.slot, g.scheduled_time, g.priority, g.priority, {{fair_rank_of_staged}},
    'PENDING', p.admission, g.at, g.attempt, g.max_execution_us, g.sla_us, g.ordering_key,
    g.parameters, g.correlation_id, g.parent_run_id, g.root_run_id, g.stales,
    g.trigger_source, g.trigger_message_id, g.at, g.item_key, g.item, g.expires_us
FROM temp.tally b
    CROSS JOIN (SELECT place FROM temp.staged ORDER BY source) AS o
    CROSS JOIN temp.staged p ON p.place = o.place
    CROSS JOIN temp.given g ON g.ord = p.source
    LEFT JOIN {{fair_rank_join}}
WHERE b.what = 'base'
ON CONFLICT DO NOTHING;
{{journal_runs}}

-- fragment: journal_runs [sqlite]
-- There is no other writer, so all ids above the base were inserted here.
INSERT INTO journal (at, kind, subject, customer, action, actor, to_state, why)
SELECT r.created_at, 'run', r.run_id, r.customer, 'created', :actor, 'PENDING', r.trigger_source
FROM temp.tally b CROSS JOIN runs r ON r.run_id > b.n WHERE b.what = 'base';
INSERT INTO outbox (topic, payload, created_at)
SELECT 'penstock.runs', json_object('run_id', r.run_id, 'config_id', r.config_id,
    'customer', r.customer, 'priority', r.priority), r.created_at
FROM topics t CROSS JOIN temp.tally b CROSS JOIN runs r ON r.run_id > b.n
WHERE t.customer = 0 AND t.name = 'penstock.runs' AND b.what = 'base' AND r.admission = 0

-- fragment: given_table [sqlite]
CREATE TEMP TABLE IF NOT EXISTS given (
    ord integer PRIMARY KEY, customer integer, config_id integer, processor integer,
    pool integer, pipeline integer, flow_id integer, partition text, mode text, slot integer,
    scheduled_time integer, priority integer, attempt integer, max_execution_us integer,
    sla_us integer, ordering_key text, parameters text, correlation_id text,
    parent_run_id integer, root_run_id integer, stales integer, trigger_source text,
    trigger_message_id text, at integer, is_limited integer, item_key text, item text,
    expires_us integer);
CREATE INDEX IF NOT EXISTS temp.given_in_order ON given (ordering_key)
    WHERE ordering_key IS NOT NULL

-- fragment: given_from_batch
-- The time limit is the stricter of config and processor; 0 means not declared, by both: an hour.
-- The time that a run may wait is the run's own, else the config's, else the processor's.
SELECT batch.ord, batch.customer, batch.config_id, batch.processor, p.pool, p.pipeline,
    batch.flow_id, batch.partition, batch.mode,
    coalesce(batch.slot, batch.scheduled_time, {{now}}) AS slot,
    coalesce(batch.scheduled_time, {{now}}) AS scheduled_time,
    batch.priority, batch.attempt,
    coalesce({{pg:least}}{{lite:min}}(nullif(batch.max_execution_us, 0),
        nullif(p.max_execution_us, 0)), nullif(batch.max_execution_us, 0),
        nullif(p.max_execution_us, 0), 3600000000) AS max_execution_us, batch.sla_us,
    batch.ordering_key, batch.parameters, batch.correlation_id, batch.parent_run_id,
    batch.root_run_id, 0 AS stales, batch.trigger_source, batch.trigger_message_id, {{now}} AS at,
    p.limits IS NOT NULL AS is_limited, batch.item_key, batch.item, coalesce(batch.expires_us, (
        SELECT f.expires_us FROM configs f WHERE f.config_id = batch.config_id), p.expires_us)
        AS expires_us
FROM {{batch}} JOIN processors p ON p.processor = batch.processor

-- name: run_insert_many [postgres]
-- Insert runs as ready, later, paused, blocked or limited. Returns their ids in batch order.
-- scope: system (the batch names its customers)
-- batch: customer bigint, processor bigint, config_id bigint, flow_id bigint, partition text,
--   mode text, slot bigint, scheduled_time bigint, priority smallint, attempt smallint,
--   max_execution_us bigint, sla_us bigint, ordering_key text, parameters text,
--   correlation_id text, parent_run_id bigint, root_run_id bigint, trigger_source text,
--   trigger_message_id text, item_key text, item text, expires_us bigint
WITH given AS MATERIALIZED (
    {{given_from_batch}}
), {{rank_given}}, inserted AS (
    {{insert_ranked}}
    ORDER BY j.ord
    ON CONFLICT DO NOTHING
    RETURNING run_id, customer, config_id, priority, admission, trigger_source, created_at
), {{journal_inserted}}
SELECT run_id, admission FROM inserted ORDER BY run_id;

-- name: run_insert_many [postgres one]
-- differs because a single run gets its fair rank by one update, without numbering a batch. It
-- takes a third less time.
-- scope: system (the batch names its customers)
WITH given AS MATERIALIZED (
    {{given_from_batch}}
), behind AS (
    SELECT CAST(0 AS bigint) AS ord WHERE FALSE
), judged AS MATERIALIZED (
    SELECT g.*, {{admission_of_given}} AS admission, {{fair_clock}} AS clock,
        {{fair_rank_seen}} AS seen, {{stride}} AS stride
    FROM given g
), moved AS (
    UPDATE fair_ranks t SET fair_rank = greatest(t.fair_rank, coalesce(g.clock, 0)) + g.stride
    FROM judged g
    WHERE g.admission = 0 AND t.pool = g.pool AND t.level = g.priority
        AND t.customer = g.customer AND t.fair_rank >= g.seen
    RETURNING t.fair_rank
), added AS (
    INSERT INTO fair_ranks (pool, level, customer, fair_rank)
    SELECT g.pool, g.priority, g.customer, coalesce(g.clock, 0) + g.stride FROM judged g
    WHERE g.admission = 0 AND g.seen IS NULL
    ON CONFLICT DO NOTHING
), seated AS (
    SELECT j.*, CASE WHEN j.admission <> 0 THEN 0
        ELSE coalesce((SELECT fair_rank FROM moved), coalesce(j.clock, 0) + j.stride) END AS seat
    FROM judged j
), inserted AS (
    {{insert_ranked}}
    ON CONFLICT DO NOTHING
    RETURNING run_id, customer, config_id, priority, admission, trigger_source, created_at
), {{journal_inserted}}
SELECT run_id, admission FROM inserted;

-- name: run_insert_many [sqlite]
-- differs because SQLite has no data-modifying CTEs: rows are staged in temporary tables.
-- scope: system (the batch names its customers)
-- batch: customer bigint, processor bigint, config_id bigint, flow_id bigint, partition text,
--   mode text, slot bigint, scheduled_time bigint, priority smallint, attempt smallint,
--   max_execution_us bigint, sla_us bigint, ordering_key text, parameters text,
--   correlation_id text, parent_run_id bigint, root_run_id bigint, trigger_source text,
--   trigger_message_id text, item_key text, item text, expires_us bigint
{{given_table}};
DELETE FROM temp.given;
INSERT INTO temp.given {{given_from_batch}};
{{insert_given}};
SELECT r.run_id, r.admission FROM temp.tally b CROSS JOIN runs r ON r.run_id > b.n
WHERE b.what = 'base' ORDER BY r.run_id;

-- name: ordering_key_lock_many [postgres]
-- Serialize insertion and release per ordering key; taken before the statement that reads.
-- scope: system (a lock, no rows)
-- batch: ordering_key text
SELECT pg_advisory_xact_lock(hashtextextended(k.ordering_key, 7))
FROM (SELECT DISTINCT ordering_key FROM {{batch}} ORDER BY ordering_key) AS k;

-- name: ordering_key_lock_many [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (a lock, no rows)
-- batch: ordering_key text
SELECT 1 WHERE FALSE;

-- fragment: held_columns
-- The columns a holder (worker, sweeper) needs, in the order of `rows.HeldRun`.
r.run_id, r.token, r.state, r.customer, c.customer_id, r.config_id, r.processor, r.flow_id,
r.partition, r.mode, r.slot, r.scheduled_time, r.priority, r.pool, r.level, r.pass, r.attempt, r.lapses, r.stales,
r.max_execution_us, r.sla_us, r.ordering_key, coalesce(r.parameters, f.parameters),
coalesce(f.retry, p.retry), r.correlation_id, r.parent_run_id, r.root_run_id, r.trigger_source,
r.trigger_message_id, r.claimed_at, r.started_at, r.created_at, r.claimed_by, r.session_id,
r.cancel_requested_at,
CASE WHEN r.flow_id IS NULL
    THEN (SELECT d.context FROM run_gates d WHERE d.run_id = coalesce(r.root_run_id, r.run_id))
    ELSE (SELECT d.gate FROM flow_phases d WHERE d.flow_id = r.flow_id AND d.phase = p.phase
        AND d.processor IN ('', p.name) ORDER BY d.processor DESC LIMIT 1) END, p.retry,
r.item_key, r.item

-- fragment: held_joins
JOIN customers c ON c.customer = r.customer
JOIN processors p ON p.processor = r.processor
LEFT JOIN configs f ON f.config_id = r.config_id

-- fragment: pinned_parameters
-- A run of a config keeps the parameters that the config has at its first claim: its retries and
-- replays process the same occurrence.
CASE WHEN runs.parameters IS NULL AND runs.config_id IS NOT NULL
    THEN (SELECT f.parameters FROM configs f WHERE f.config_id = runs.config_id)
    ELSE runs.parameters END

-- fragment: unexpired
-- A run that has waited too long does not start, even before the sweeper ends it.
(expires_us IS NULL OR scheduled_time + expires_us > {{now}})

-- fragment: session_alive [postgres]
SELECT session_id FROM sessions WHERE session_id = :session_id FOR KEY SHARE

-- fragment: claimable [postgres]
processor {{any processors}} AND (CAST(:customer AS bigint) IS NULL OR customer = :customer)
    AND {{unexpired}}
    AND (CAST(:session_id AS bigint) IS NULL OR EXISTS (SELECT 1 FROM alive))

-- fragment: claim_picked [postgres]
UPDATE runs SET state = CASE WHEN :start THEN 'RUNNING' ELSE 'CLAIMED' END, admission = 9,
    session_id = :session_id, claimed_by = :claimed_by, claimed_at = {{now}},
    started_at = CASE WHEN :start THEN {{now}} END, state_at = {{now}},
    token = nextval('token_seq'), parameters = {{pinned_parameters}}
WHERE runs.run_id = ANY(ARRAY(SELECT run_id FROM picked))
RETURNING runs.*

-- name: run_claim [postgres]
-- Claim the next ready runs of a pool: by level, then fair rank, then age. Rows are found by an
-- array of ids, not by a join: a plan made while the queue was empty would scan all of it once it
-- has filled (measured: a tenth of the rate). A session that was swept claims nothing, because its
-- worker may be gone for long. The lock keeps sweepers away until the claim itself can be swept; it
-- does not block heartbeats.
-- scope: system (workers serve all customers; a tenant's key adds :customer)
WITH alive AS MATERIALIZED (
    {{session_alive}}
), picked AS MATERIALIZED (
    SELECT run_id FROM runs
    WHERE admission = 0 AND pool = :pool AND {{claimable}}
    ORDER BY level DESC, pass, run_id LIMIT :n FOR UPDATE SKIP LOCKED
), r AS (
    {{claim_picked}}
)
SELECT {{held_columns}} FROM r {{held_joins}}
ORDER BY r.level DESC, r.pass, r.run_id;

-- name: run_claim_from [postgres]
-- Claim like `run_claim`, but read each level from a fair rank on (`runs.claim_start` explains
-- why). Levels are read one after the other, the highest first, until there are enough runs.
-- scope: system (workers serve all customers; a tenant's key adds :customer)
WITH alive AS MATERIALIZED (
    {{session_alive}}
), picked AS MATERIALIZED (
    SELECT k.run_id
    FROM unnest(CAST(:levels AS bigint[]), CAST(:fair_ranks AS bigint[])) AS f (level, fair_rank)
        CROSS JOIN LATERAL (
            SELECT run_id FROM runs
            WHERE admission = 0 AND pool = :pool AND level = CAST(f.level AS smallint)
                AND pass >= f.fair_rank AND {{claimable}}
            ORDER BY pass, run_id LIMIT :n FOR UPDATE SKIP LOCKED) AS k
    LIMIT :n
), r AS (
    {{claim_picked}}
)
SELECT {{held_columns}} FROM r {{held_joins}}
ORDER BY r.level DESC, r.pass, r.run_id;

-- fragment: claim_to_pick [sqlite]
CREATE TEMP TABLE IF NOT EXISTS picked (
    rank integer PRIMARY KEY, run_id integer, at integer);
DELETE FROM temp.picked;
INSERT INTO temp.picked (run_id, at)
SELECT run_id, {{now}} FROM runs
WHERE admission = 0 AND pool = :pool AND processor {{any processors}} AND {{unexpired}}
    AND (CAST(:customer AS bigint) IS NULL OR customer = :customer)
    AND (CAST(:session_id AS bigint) IS NULL
        OR EXISTS (SELECT 1 FROM sessions WHERE session_id = :session_id))

-- fragment: claim_picked [sqlite]
UPDATE runs SET state = CASE WHEN :start THEN 'RUNNING' ELSE 'CLAIMED' END, admission = 9,
    session_id = :session_id, claimed_by = :claimed_by, claimed_at = k.at,
    started_at = CASE WHEN :start THEN k.at END, state_at = k.at,
    parameters = {{pinned_parameters}},
    token = (SELECT value FROM counters WHERE name = 'token') + k.rank
FROM temp.picked k WHERE runs.run_id = k.run_id;
UPDATE counters SET value = value + coalesce((SELECT max(rank) FROM temp.picked), 0)
WHERE name = 'token';
SELECT {{held_columns}} FROM temp.picked k CROSS JOIN runs r ON r.run_id = k.run_id {{held_joins}}
ORDER BY k.rank

-- name: run_claim [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (workers serve all customers; a tenant's key adds :customer)
{{claim_to_pick}}
ORDER BY level DESC, pass, run_id LIMIT :n;
{{claim_picked}};

-- name: run_claim_from [sqlite]
-- differs because SQLite keeps no dead index entries: everything is read, whatever the fair rank.
-- scope: system (workers serve all customers; a tenant's key adds :customer)
{{claim_to_pick}}
    AND :levels IS NOT NULL AND :fair_ranks IS NOT NULL
ORDER BY level DESC, pass, run_id LIMIT :n;
{{claim_picked}};

-- name: run_claim_by_id [postgres]
-- Claim one given run if it is ready, so that a broker can dispatch workers.
-- scope: system (workers serve all customers; a tenant's key adds :customer)
WITH picked AS MATERIALIZED (
    SELECT run_id FROM runs WHERE run_id = :run_id AND admission = 0 AND {{unexpired}}
        AND (CAST(:customer AS bigint) IS NULL OR customer = :customer)
    FOR UPDATE SKIP LOCKED
), r AS (
    UPDATE runs SET state = 'CLAIMED', admission = 9, session_id = :session_id,
        claimed_by = :claimed_by, claimed_at = {{now}}, state_at = {{now}},
        token = nextval('token_seq'), parameters = {{pinned_parameters}}
    FROM picked WHERE runs.run_id = picked.run_id
    RETURNING runs.*
)
SELECT {{held_columns}} FROM r {{held_joins}};

-- name: run_claim_by_id [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (workers serve all customers; a tenant's key adds :customer)
UPDATE counters SET value = value + 1 WHERE name = 'token';
UPDATE runs SET state = 'CLAIMED', admission = 9, session_id = :session_id,
    claimed_by = :claimed_by, claimed_at = {{now}}, state_at = {{now}},
    parameters = {{pinned_parameters}},
    token = (SELECT value FROM counters WHERE name = 'token')
WHERE run_id = :run_id AND admission = 0 AND {{unexpired}}
    AND (CAST(:customer AS bigint) IS NULL OR customer = :customer);
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.run_id = :run_id AND changes() = 1;

-- name: fair_clock_raise [postgres]
-- Advance the fairness clock of a pool and level to the claimed ranks; it never goes back.
-- scope: system (fairness across customers)
-- batch: pool bigint, level smallint, fair_rank bigint
WITH raised AS MATERIALIZED (
    SELECT batch.pool, batch.level, batch.fair_rank, (SELECT k.fair_rank FROM fair_ranks k
        WHERE k.pool = batch.pool AND k.level = batch.level AND k.customer = 0
        ORDER BY k.fair_rank DESC LIMIT 1) AS seen
    FROM {{batch}} ORDER BY 1, 2
), moved AS (
    UPDATE fair_ranks t SET fair_rank = r.fair_rank FROM raised r
    WHERE t.pool = r.pool AND t.level = r.level AND t.customer = 0 AND t.fair_rank >= r.seen
        AND t.fair_rank < r.fair_rank
)
INSERT INTO fair_ranks (pool, level, customer, fair_rank)
SELECT r.pool, r.level, 0, r.fair_rank FROM raised r WHERE r.seen IS NULL
ON CONFLICT DO NOTHING;

-- name: fair_clock_raise [sqlite]
-- differs because the rank is not part of the key: SQLite keeps no dead versions of a row.
-- scope: system (fairness across customers)
-- batch: pool bigint, level smallint, fair_rank bigint
INSERT INTO fair_ranks (pool, level, customer, fair_rank)
SELECT batch.pool, batch.level, 0, batch.fair_rank FROM {{batch}} WHERE TRUE ORDER BY 1, 2
ON CONFLICT (pool, level, customer) DO UPDATE SET fair_rank = excluded.fair_rank
WHERE fair_ranks.fair_rank < excluded.fair_rank;

-- fragment: ids_known [postgres]
-- The ids again, as an array, so that no plan, however old, scans the whole queue.
AND runs.run_id = ANY(:b_run_id::bigint[])

-- fragment: ids_known [sqlite]
AND TRUE

-- name: run_start_many
-- Mark CLAIMED runs RUNNING for holders whose token is current.
-- scope: system (by token, known only to the holder)
-- batch: run_id bigint, token bigint
UPDATE runs SET state = 'RUNNING', started_at = {{now}}, state_at = {{now}}
FROM {{batch}}
WHERE runs.run_id = batch.run_id {{ids_known}} AND runs.token = batch.token AND runs.state = 'CLAIMED'
RETURNING runs.run_id;

-- name: run_release_many
-- Put runs back into the queue, untouched (drain) or snoozed; attempts are not counted.
-- scope: system (by token, known only to the holder)
-- batch: run_id bigint, token bigint, delay_us bigint
UPDATE runs SET state = 'PENDING', admission = 1, scheduled_time = {{now}} + batch.delay_us,
    session_id = NULL, claimed_by = NULL, claimed_at = NULL, started_at = NULL, state_at = {{now}}
FROM {{batch}}
WHERE runs.run_id = batch.run_id {{ids_known}} AND runs.token = batch.token
    AND runs.state IN ('CLAIMED', 'RUNNING')
RETURNING runs.run_id, runs.limits, runs.cancel_requested_by IS NOT NULL;

-- name: run_lapse_many
-- Put CLAIMED runs with an expired lease back into the queue; the lapse counts.
-- scope: system (sweeper)
-- batch: run_id bigint, token bigint
UPDATE runs SET state = 'PENDING', admission = 1, session_id = NULL, claimed_by = NULL,
    claimed_at = NULL, lapses = lapses + 1, state_at = {{now}}
FROM {{batch}}
WHERE runs.run_id = batch.run_id {{ids_known}} AND runs.token = batch.token AND runs.state = 'CLAIMED'
RETURNING runs.run_id, runs.limits, runs.cancel_requested_by IS NOT NULL;

-- name: run_retry_lock [postgres]
-- Serialize retries of a run; taken before the statements that read it. No topic has key -1.
-- scope: system (a lock, no rows)
SELECT pg_advisory_xact_lock(-1, CAST(:run_id % 1024 AS integer));

-- name: run_retry_lock [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (a lock, no rows)
SELECT 1 WHERE :run_id IS NULL;

-- name: cohort_reopen
-- Take the last attempt of an ended run's occurrence out of the sums: a person retries the run. It
-- is the attempt that is counted, also if the person retries an earlier one.
-- scope: system (the caller has checked the run)
INSERT INTO cohort_sums (slot, processor, completed, dead, cancelled, ended_at)
SELECT k.slot, k.processor, CASE WHEN k.final_state = 'COMPLETED' THEN -1 ELSE 0 END,
    CASE WHEN k.is_dead THEN -1 ELSE 0 END,
    CASE WHEN k.final_state = 'COMPLETED' OR k.is_dead THEN 0 ELSE -1 END, k.finished_at
FROM history h JOIN history k ON k.customer = h.customer AND k.slot = h.slot
    AND k.config_id = h.config_id AND k.processor = h.processor
WHERE h.run_id = :run_id AND h.flow_id IS NULL AND h.trigger_message_id IS NULL
    AND k.flow_id IS NULL AND k.trigger_message_id IS NULL
ORDER BY k.run_id DESC LIMIT 1;

-- name: run_durations
-- Durations of the newest executions of a live run's processor, for the same customer.
-- scope: system (the caller has checked the run)
SELECT e.durations FROM runs r JOIN execution_hours e ON e.processor = r.processor
    AND e.customer = r.customer
WHERE r.run_id = :run_id ORDER BY e.hour_at DESC LIMIT :n;

-- name: run_similar
-- The newest dead runs of a run's processor with the same error type, by their index.
-- scope: system (operators; a tenant's key adds :customer)
SELECT d.customer, d.died_at, substr(d.error_details, 1, CAST(:chars AS integer))
FROM dead_letters d
WHERE d.kind = 'run' AND d.processor = (
        SELECT h.processor FROM history h WHERE h.run_id = :run_id)
    AND d.error_type = :error_type AND d.died_at >= :since
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
ORDER BY d.died_at DESC LIMIT :limit;
