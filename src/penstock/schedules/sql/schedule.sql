-- The tick: due configs become runs, exactly once per occurrence, with any number of schedulers.

-- name: schedule_take_due [postgres]
-- Lock the next due configs, grouped by what determines their scheduled times.
-- scope: system (the scheduler serves all customers)
WITH due AS MATERIALIZED (
    SELECT config_id, cadence, next_run_time, catch_up, window_us FROM schedule
    WHERE next_run_time <= {{now}}
    ORDER BY next_run_time, config_id LIMIT :n FOR UPDATE SKIP LOCKED
)
SELECT cadence, next_run_time, catch_up, window_us, array_agg(config_id), {{now}}
FROM due GROUP BY cadence, next_run_time, catch_up, window_us;

-- name: schedule_take_due [sqlite]
-- differs because SQLite aggregates into JSON and has one writer.
-- scope: system (the scheduler serves all customers)
SELECT cadence, next_run_time, catch_up, window_us, json_group_array(config_id), {{now}}
FROM (SELECT config_id, cadence, next_run_time, catch_up, window_us FROM schedule
      WHERE next_run_time <= {{now}} ORDER BY next_run_time, config_id LIMIT :n) AS due
GROUP BY cadence, next_run_time, catch_up, window_us;

-- name: schedule_is_due
-- The earliest next_run_time, read without a lock (other schedulers may hold rows that SKIP LOCKED
-- left out).
-- scope: system (the scheduler serves all customers)
SELECT next_run_time, {{now}} FROM schedule ORDER BY next_run_time LIMIT 1;

-- fragment: tick_rows
-- One row per taken config with its outcome: run, none (nothing to start), paused, skipped_overlap.
-- Uses scalar subqueries instead of EXISTS, because PostgreSQL would hash all of `runs` for every
-- batch.
SELECT g.*,
    CASE
        WHEN g.run_slot IS NULL THEN 'none'
        WHEN {{is_paused}} THEN 'paused'
        WHEN g.catch_up = 'all' OR g.overlap = 'allow' THEN 'run'
        WHEN g.overlap = 'skip' AND (
            SELECT r.run_id FROM runs r WHERE r.customer = g.customer
                AND r.config_id = g.config_id AND (NOT g.has_flow OR r.flow_id IS NULL OR NOT (
                    SELECT w.by_hand FROM flows w WHERE w.flow_id = r.flow_id)) LIMIT 1) IS NOT NULL
            THEN 'skipped_overlap'
        WHEN g.has_flow AND g.overlap = 'skip' AND (
            SELECT w.flow_id FROM flows w WHERE w.config_id = g.config_id
                AND w.ended_at IS NULL AND NOT w.by_hand LIMIT 1) IS NOT NULL
            THEN 'skipped_overlap'
        WHEN g.overlap = 'queue' AND (
            SELECT r.run_id FROM runs r WHERE r.customer = g.customer
                AND r.config_id = g.config_id AND r.admission = 3 LIMIT 1) IS NOT NULL
            THEN 'skipped_overlap'
        WHEN g.has_flow AND g.overlap = 'queue' AND (
            SELECT w.flow_id FROM flows w WHERE w.config_id = g.config_id AND w.ended_at IS NULL
                AND w.is_ordered AND w.flow_id > (SELECT min(e.flow_id) FROM flows e
                    WHERE e.config_id = g.config_id AND e.ended_at IS NULL AND NOT e.by_hand)
                LIMIT 1) IS NOT NULL
            THEN 'skipped_overlap'
        ELSE 'run'
    END AS outcome
FROM (
    SELECT s.config_id, s.next_run_time AS slot, s.catch_up, batch.run_slot, batch.next_slot,
        batch.missed_from, batch.missed_to, batch.missed_count, batch.is_late,
        c.customer, c.pipeline, c.priority, c.max_execution_us, c.sla_us, c.overlap, c.offset_us,
        c.expires_us, l.has_flow, {{run_partition}} AS partition{{pg:, s.ctid AS place}}
    FROM {{taken_rows}}
    JOIN pipelines l ON l.pipeline = c.pipeline
) AS g

-- fragment: run_partition
-- The partition of a run without a flow, computed by the caller per rule, zone and scheduled time.
CASE WHEN l.partition_rule IS NOT NULL AND NOT l.has_flow THEN
    {{pg:CAST(:partitions AS jsonb) ->> concat_ws('|', l.partition_rule, c.timezone, batch.run_slot)}}{{lite:(
    SELECT e.value FROM json_each(:partitions) e
    WHERE e.key = l.partition_rule || '|' || c.timezone || '|' || batch.run_slot)}} END

-- fragment: taken_rows [postgres]
{{batch}} JOIN schedule s ON s.config_id = batch.config_id
JOIN configs c ON c.config_id = batch.config_id

-- fragment: taken_rows [sqlite]
-- differs because no other writer changes rows inside a transaction: the same rows are simply read
-- again, and the batch has one row per group instead of one per config.
(SELECT * FROM schedule WHERE next_run_time <= :taken_at
    ORDER BY next_run_time, config_id LIMIT :n) AS s
CROSS JOIN {{batch}} ON batch.slot = s.next_run_time AND batch.cadence = s.cadence
    AND batch.catch_up = s.catch_up AND batch.window_us = s.window_us
CROSS JOIN configs c ON c.config_id = s.config_id

-- fragment: tick_given [postgres]
SELECT row_number() OVER () AS ord,
    t.customer, t.config_id, p.processor, p.pool, p.pipeline, CAST(NULL AS bigint) AS flow_id,
    t.partition, CAST(NULL AS text) AS mode, t.run_slot AS slot,
    CASE WHEN t.is_late THEN CAST(:cursor AS bigint) + :gap_us * count(*) FILTER (WHERE t.is_late)
            OVER (ROWS UNBOUNDED PRECEDING)
        ELSE t.run_slot + t.offset_us END AS scheduled_time,
    t.priority, 1 AS attempt, coalesce(least(nullif(t.max_execution_us, 0),
        nullif(p.max_execution_us, 0)), 3600000000) AS max_execution_us, t.sla_us,
    {{tick_ordering_key}} AS ordering_key,
    CAST(NULL AS text) AS parameters, CAST(NULL AS text) AS correlation_id,
    CAST(NULL AS bigint) AS parent_run_id,
    CAST(NULL AS bigint) AS root_run_id, 0 AS stales, 'scheduler' AS trigger_source,
    CAST(NULL AS text) AS trigger_message_id, {{now}} AS at, p.limits IS NOT NULL AS is_limited,
    '' AS item_key, CAST(NULL AS text) AS item,
    coalesce(t.expires_us, p.expires_us) AS expires_us
FROM tick t
JOIN processors p ON p.pipeline = t.pipeline AND p.is_entry AND p.is_current
WHERE t.outcome = 'run' AND NOT t.has_flow

-- fragment: tick_ordering_key
CASE WHEN t.catch_up = 'all' OR t.overlap = 'queue' THEN
    'config:' || t.config_id || ':' || p.processor END

-- fragment: stage_tick [sqlite]
-- Reads the temporary table `tick`. A config is taken once per batch, so none of its runs waits for
-- another run of the same batch.
{{staged_table}};
INSERT INTO temp.staged (source, processor, pool, level, customer, admission)
SELECT t.rowid, p.processor, p.pool, t.priority, t.customer,
    CASE
        WHEN (t.catch_up = 'all' OR t.overlap = 'queue') AND (
            SELECT o.run_id FROM runs o WHERE o.ordering_key = {{tick_ordering_key}} LIMIT 1)
            IS NOT NULL THEN 3
        WHEN t.is_late OR t.run_slot + t.offset_us > {{now}} THEN 1
        WHEN p.limits IS NOT NULL OR t.customer IN (
            SELECT s.customer FROM customer_settings s WHERE s.concurrency IS NOT NULL) THEN 4
        ELSE 0
    END AS admission
FROM temp.tick t CROSS JOIN processors p ON p.pipeline = t.pipeline AND p.is_entry AND p.is_current
WHERE t.outcome = 'run' AND NOT t.has_flow
ORDER BY {{staged_order}}, t.rowid;
UPDATE temp.staged SET late = k.rank
FROM (SELECT d.place, row_number() OVER (ORDER BY d.source, d.processor) AS rank
      FROM temp.staged d CROSS JOIN temp.tick t ON t.rowid = d.source
      WHERE :cursor IS NOT NULL AND t.is_late) AS k
WHERE staged.place = k.place;
{{fair_ranks_from_staged}}

-- fragment: flows_of_tick
-- Occurrences of pipelines with phases: (config, scheduled time, late) as JSON. The same
-- transaction opens their flows in separate statements, so that they add no cost to single runs.
FROM {{pg:tick}}{{lite:temp.tick}} t WHERE t.outcome = 'run' AND t.has_flow

-- fragment: ledger_of_tick
INSERT INTO ledger (config_id, slot_from, slot_to, slots, outcome, at)
SELECT t.config_id, t.missed_from, t.missed_to, t.missed_count, 'skipped_missed', {{now}}
FROM {{pg:tick}}{{lite:temp.tick}} t WHERE t.missed_count > 0
UNION ALL
SELECT t.config_id, t.run_slot, t.run_slot, 1, t.outcome, {{now}}
FROM {{pg:tick}}{{lite:temp.tick}} t WHERE t.outcome IN ('paused', 'skipped_overlap')
ON CONFLICT (config_id, slot_from) DO NOTHING

-- name: schedule_start_many [postgres]
-- Advance the taken configs and start their occurrences: runs, flows, ledger, journal, in one
-- statement. This transaction has locked the rows, so their ctid finds them again directly.
-- scope: system (the scheduler serves all customers)
-- batch: config_id bigint, run_slot bigint, next_slot bigint, missed_from bigint,
--   missed_to bigint, missed_count bigint, is_late boolean
WITH tick AS MATERIALIZED (
    {{tick_rows}}
), advanced AS (
    UPDATE schedule s SET next_run_time = t.next_slot,
        evaluated_to = greatest(s.evaluated_to, coalesce(t.run_slot, t.missed_to))
    FROM tick t WHERE s.ctid = t.place AND s.config_id = t.config_id
        AND s.next_run_time = t.slot
    RETURNING s.config_id
), given AS MATERIALIZED (
    {{tick_given}}
), {{rank_given}}, inserted AS (
    {{insert_ranked}}
    ON CONFLICT (customer, config_id, slot, processor, attempt, item_key) DO NOTHING
    RETURNING run_id, customer, config_id, priority, admission, trigger_source, created_at
), {{journal_inserted}}, skipped AS (
    {{ledger_of_tick}}
)
SELECT (SELECT count(*) FROM tick), (SELECT count(*) FROM advanced),
    (SELECT count(*) FROM inserted),
    (SELECT count(*) FROM tick WHERE outcome = 'skipped_overlap'),
    (SELECT count(*) FROM tick WHERE outcome = 'paused'),
    (SELECT coalesce(sum(missed_count), 0)::bigint FROM tick),
    (SELECT count(*) FROM given),
    (SELECT json_agg(json_build_array(t.config_id, t.run_slot, t.is_late))::text {{flows_of_tick}});

-- name: schedule_start_many [sqlite]
-- differs because SQLite has no data-modifying CTEs: the taken rows are staged in a temporary
-- table.
-- scope: system (the scheduler serves all customers)
-- batch: cadence bigint key, slot bigint key, catch_up text, window_us bigint, run_slot bigint,
--   next_slot bigint, missed_from bigint, missed_to bigint, missed_count bigint, is_late boolean
{{tally_table}};
CREATE TEMP TABLE IF NOT EXISTS tick AS SELECT * FROM ({{tick_rows}}) WHERE FALSE;
DELETE FROM temp.tick;
INSERT INTO temp.tick {{tick_rows}};
UPDATE schedule SET next_run_time = t.next_slot,
    evaluated_to = max(evaluated_to, coalesce(t.run_slot, t.missed_to))
FROM temp.tick t WHERE schedule.config_id = t.config_id AND +schedule.next_run_time = t.slot;
REPLACE INTO temp.tally VALUES ('advanced', changes());
{{stage_tick}};
INSERT INTO runs (run_id, {{insert_columns}})
SELECT b.n + p.place, t.customer, t.config_id, p.processor, p.pool, NULL, t.partition, NULL,
    t.run_slot, CASE WHEN t.is_late THEN :cursor + :gap_us * p.late
        ELSE t.run_slot + t.offset_us END,
    t.priority, t.priority, {{fair_rank_of_staged}}, 'PENDING', p.admission, {{now}}, 1,
    (SELECT coalesce(min(nullif(t.max_execution_us, 0), nullif(q.max_execution_us, 0)),
        nullif(t.max_execution_us, 0), nullif(q.max_execution_us, 0), 3600000000)
     FROM processors q WHERE q.processor = p.processor),
    t.sla_us, {{tick_ordering_key}}, NULL, NULL, NULL, NULL, 0,
    'scheduler', NULL, {{now}}, '', NULL,
    coalesce(t.expires_us, (SELECT q.expires_us FROM processors q
        WHERE q.processor = p.processor))
FROM temp.tally b CROSS JOIN temp.staged p CROSS JOIN temp.tick t ON t.rowid = p.source
    LEFT JOIN {{fair_rank_join}}
WHERE b.what = 'base'
ON CONFLICT DO NOTHING;
REPLACE INTO temp.tally VALUES ('inserted', changes());
{{journal_runs}};
{{ledger_of_tick}};
SELECT count(*), (SELECT n FROM temp.tally WHERE what = 'advanced'),
    (SELECT n FROM temp.tally WHERE what = 'inserted'),
    count(*) FILTER (WHERE outcome = 'skipped_overlap'), count(*) FILTER (WHERE outcome = 'paused'),
    coalesce(sum(missed_count), 0), (SELECT count(*) FROM temp.staged),
    (SELECT nullif(json_group_array(json_array(t.config_id, t.run_slot, t.is_late)), '[]')
     {{flows_of_tick}})
FROM temp.tick;

-- name: partition_rules_of
-- The rules by which runs of these configs get a partition, with the time zones of the configs. The
-- first condition is evaluated once: without such pipelines nothing else is read.
-- scope: system (the scheduler serves all customers)
SELECT DISTINCT l.partition_rule, c.timezone FROM configs c
JOIN pipelines l ON l.pipeline = c.pipeline
WHERE (SELECT p.pipeline FROM pipelines p
        WHERE p.partition_rule IS NOT NULL AND NOT p.has_flow LIMIT 1) IS NOT NULL
    AND c.config_id {{any ids}} AND l.partition_rule IS NOT NULL AND NOT l.has_flow;

-- name: entry_count
-- Count the runs that one occurrence of each of these configs starts.
-- scope: system (the scheduler serves all customers)
SELECT count(*) FROM configs c
JOIN processors p ON p.pipeline = c.pipeline AND p.is_entry AND p.is_current
WHERE c.config_id {{any ids}};

-- name: catch_up_reserve
-- Reserve a span of the global start rate for late runs. Returns its beginning.
-- scope: system (shared by all schedulers)
UPDATE counters SET value = greatest(value, {{now}}) + :span_us WHERE name = 'catch_up_cursor'
RETURNING value - :span_us;

-- name: catch_up_return
-- Shorten the span that this transaction reserved; its row lock keeps the counter unchanged since.
-- scope: system (shared by all schedulers)
UPDATE counters SET value = value - :span_us WHERE name = 'catch_up_cursor';

-- name: cadence_ensure
-- The key of a cadence; equal cadences share one row.
-- scope: system (cadences have no customer)
INSERT INTO cadences (cron, timezone, interval_us) VALUES (:cron, :timezone, :interval_us)
ON CONFLICT (cron, timezone, interval_us) DO NOTHING;
SELECT cadence FROM cadences
WHERE cron = :cron AND timezone = :timezone AND interval_us = :interval_us;

-- name: cadence_list
-- Cadences by key, for the scheduler's cache.
-- scope: system (cadences have no customer)
SELECT cadence, cron, timezone, interval_us FROM cadences WHERE cadence {{any ids}};

-- name: schedule_put
-- Schedule a config or change its schedule. evaluated_to never moves back.
-- scope: system (the caller has checked the config)
INSERT INTO schedule (config_id, cadence, next_run_time, evaluated_to, catch_up, window_us)
VALUES (:config_id, :cadence, :next_run_time, :evaluated_to, :catch_up, :window_us)
ON CONFLICT (config_id) DO UPDATE SET cadence = excluded.cadence,
    next_run_time = excluded.next_run_time,
    evaluated_to = greatest(schedule.evaluated_to, excluded.evaluated_to),
    catch_up = excluded.catch_up, window_us = excluded.window_us;

-- name: schedule_put_many
-- Schedule many new configs.
-- scope: system (the caller has checked the configs)
-- batch: config_id bigint, cadence bigint, next_run_time bigint, evaluated_to bigint,
--   catch_up text, window_us bigint
INSERT INTO schedule (config_id, cadence, next_run_time, evaluated_to, catch_up, window_us)
SELECT config_id, cadence, next_run_time, evaluated_to, catch_up, window_us FROM {{batch}};

-- name: schedule_get
-- The schedule row of a config, locked.
-- scope: system (the caller has checked the config)
SELECT cadence, next_run_time, evaluated_to FROM schedule WHERE config_id = :config_id
{{pg:FOR NO KEY UPDATE}};

-- name: schedule_drop
-- Remove a config from the schedule.
-- scope: system (the caller has checked the config)
DELETE FROM schedule WHERE config_id = :config_id;

-- name: ledger_put
-- Record occurrences that were due when an edit removed their cadence.
-- scope: system (the caller has checked the config)
INSERT INTO ledger (config_id, slot_from, slot_to, slots, outcome, at)
VALUES (:config_id, :slot_from, :slot_to, :slots, 'skipped_missed', {{now}});

-- name: ledger_list
-- Occurrences of a config that did not start, newest first.
-- scope: system (the caller has checked the config)
SELECT slot_from, slot_to, slots, outcome, at FROM ledger
WHERE config_id = :config_id AND slot_from < :before ORDER BY slot_from DESC LIMIT :limit;
