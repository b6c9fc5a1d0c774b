-- Upkeep: partitions, folding, retention. Run by the pruner in any number of replicas.

-- name: partitions_ensure [postgres]
-- Weekly partitions of history and journal for the weeks ahead.
-- scope: system (whole tables)
SELECT ensure_partitions({{now}}, :weeks);

-- name: partitions_ensure [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (whole tables)
SELECT 0 WHERE :weeks IS NOT NULL;

-- name: history_prune [postgres]
-- Drop whole partitions older than the retention; rows outside them by chunks.
-- scope: system (retention)
SELECT drop_partitions('history', :before);
DELETE FROM history_rest WHERE ctid IN (
    SELECT ctid FROM history_rest WHERE finished_at < :before LIMIT :n);

-- name: history_prune [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (retention)
DELETE FROM history WHERE run_id IN (
    SELECT run_id FROM history WHERE finished_at < :before LIMIT :n);

-- name: journal_unsealed_at [postgres]
-- When the first entry happened that is in no block sealed before a time; what is clearly older may go.
-- scope: system (retention)
SELECT j.at FROM journal j
WHERE (j.xid, j.seq) > (
        coalesce((SELECT s.to_xid FROM seals s WHERE s.sealed_at < :before
            ORDER BY s.block DESC LIMIT 1), '0')::xid8,
        coalesce((SELECT s.to_seq FROM seals s WHERE s.sealed_at < :before
            ORDER BY s.block DESC LIMIT 1), 0))
ORDER BY j.xid, j.seq LIMIT 1;

-- name: journal_unsealed_at [sqlite]
-- differs because one writer commits in order: seq alone is safe.
-- scope: system (retention)
SELECT j.at FROM journal j
WHERE j.seq > coalesce((SELECT s.to_seq FROM seals s WHERE s.sealed_at < :before
    ORDER BY s.block DESC LIMIT 1), 0)
ORDER BY j.seq LIMIT 1;

-- name: counter_raise
-- Move a named counter up; it never goes back.
-- scope: system (counters belong to nobody)
INSERT INTO counters (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = greatest(counters.value, excluded.value);

-- name: journal_prune [postgres]
-- Drop whole sealed partitions older than the retention.
-- scope: system (retention)
SELECT drop_partitions('journal', :before);
DELETE FROM journal_rest WHERE ctid IN (
    SELECT ctid FROM journal_rest WHERE at < :before LIMIT :n);

-- name: journal_prune [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (retention)
DELETE FROM journal WHERE seq IN (SELECT seq FROM journal WHERE at < :before LIMIT :n);

-- name: requests_prune
-- Forget requests whose memory has expired.
-- scope: system (retention)
DELETE FROM requests WHERE expires_at < {{now}};

-- name: ledger_prune
-- Forget old slots that did not start, by chunks.
-- scope: system (retention)
DELETE FROM ledger WHERE (config_id, slot_from) IN (
    SELECT config_id, slot_from FROM ledger WHERE at < :before LIMIT :n);

-- name: sums_fold [postgres]
-- Fold the deltas into one row per hour and state; what others are adding is left for later.
-- scope: system (operator's view)
WITH old AS (
    DELETE FROM run_sums WHERE sum_id IN (
        SELECT sum_id FROM run_sums WHERE hour_at < :before ORDER BY sum_id LIMIT :n
        FOR UPDATE SKIP LOCKED)
    RETURNING hour_at, final_state, runs, duration_us, sla_breaches
)
INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches)
SELECT hour_at, final_state, sum(runs), sum(duration_us), sum(sla_breaches) FROM old
GROUP BY hour_at, final_state;

-- name: sums_fold [sqlite]
-- differs because SQLite has no writing CTEs.
-- scope: system (operator's view)
CREATE TEMP TABLE IF NOT EXISTS old_sums (sum_id integer PRIMARY KEY);
DELETE FROM temp.old_sums;
INSERT INTO temp.old_sums
SELECT sum_id FROM run_sums WHERE hour_at < :before ORDER BY sum_id LIMIT :n;
INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches)
SELECT hour_at, final_state, sum(runs), sum(duration_us), sum(sla_breaches) FROM run_sums
WHERE sum_id IN (SELECT sum_id FROM temp.old_sums) GROUP BY hour_at, final_state;
DELETE FROM run_sums WHERE sum_id IN (SELECT sum_id FROM temp.old_sums);

-- name: sums_foldable
-- Whether folding would save rows.
-- scope: system (operator's view)
SELECT count(*), count(DISTINCT hour_at || final_state) FROM run_sums WHERE hour_at < :before;

-- name: fold_horizon
-- Up to when history has been folded into customer days; locked.
-- scope: system (retention)
INSERT INTO counters (name, value) VALUES ('folded_to', 0) ON CONFLICT (name) DO NOTHING;
SELECT value FROM counters WHERE name = 'folded_to' {{pg:FOR UPDATE}};

-- name: history_fold
-- Add what ended in (after, until] to its customer's days and move the horizon.
-- scope: system (every customer at once)
INSERT INTO customer_days (customer, day_at, provider, final_state, runs, duration_us, sla_met)
SELECT h.customer, h.slot - h.slot % 86400000000, h.provider, h.final_state, count(*),
    sum(h.finished_at - coalesce(h.started_at, h.finished_at)),
    sum(CASE WHEN h.sla_met THEN 1 ELSE 0 END)
FROM history h WHERE h.finished_at > :after AND h.finished_at <= :until
GROUP BY 1, 2, 3, 4
ON CONFLICT (customer, day_at, provider, final_state) DO UPDATE SET
    runs = customer_days.runs + excluded.runs,
    duration_us = customer_days.duration_us + excluded.duration_us,
    sla_met = customer_days.sla_met + excluded.sla_met;
UPDATE counters SET value = :until WHERE name = 'folded_to';

-- name: store_sizes [postgres]
-- Rough row counts of the tables, for doctor.
-- scope: system (operator's view)
SELECT relname::text, greatest(reltuples, 0)::bigint FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
ORDER BY 1;

-- name: store_sizes [sqlite]
-- differs because SQLite keeps no statistics: the hot tables are counted.
-- scope: system (operator's view)
SELECT 'configs', count(*) FROM configs
UNION ALL SELECT 'runs', count(*) FROM runs
UNION ALL SELECT 'sessions', count(*) FROM sessions
UNION ALL SELECT 'outbox', count(*) FROM outbox;

-- name: disk_risks [postgres]
-- Server settings under which a commit may be forgotten, or a page torn, when the machine stops.
-- scope: system (no rows of anybody)
SELECT name FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
ORDER BY name;

-- name: disk_risks [sqlite]
-- differs because every connection insists on the disk by itself.
-- scope: system (no rows of anybody)
SELECT name FROM (SELECT 'synchronous' AS name) AS s WHERE FALSE;

-- name: store_ping
-- Whether anybody is there.
-- scope: system (no rows of anybody)
SELECT 1;
