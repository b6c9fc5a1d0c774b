-- Upkeep: partitions, aggregation, retention. Run by the pruner in any number of replicas.

-- name: partitions_ensure [postgres]
-- Create the weekly partitions of the coming weeks.
-- scope: system (whole tables)
SELECT ensure_partitions({{now}}, :weeks);

-- name: partitions_ensure [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (whole tables)
SELECT 0 WHERE :weeks IS NOT NULL;

-- name: history_prune [postgres]
-- Drop partitions past the retention; delete rows outside them in chunks.
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
-- Time of the first entry not in a block sealed before a given time; clearly older entries may be
-- deleted. Entries of a later cluster come after all of an earlier one.
-- scope: system (retention)
WITH sealed AS MATERIALIZED (
    SELECT coalesce(max(s.cluster), 0) AS cluster, coalesce(max(s.to_xid), '0')::xid8 AS xid,
        coalesce(max(s.to_seq), 0) AS seq
    FROM (SELECT cluster, to_xid, to_seq FROM seals WHERE sealed_at < :before
        ORDER BY block DESC LIMIT 1) AS s
)
SELECT least(
    (SELECT j.at FROM journal j
     WHERE j.cluster = (SELECT cluster FROM sealed)
        AND (j.xid, j.seq) > ((SELECT xid FROM sealed), (SELECT seq FROM sealed))
     ORDER BY j.xid, j.seq LIMIT 1),
    (SELECT j.at FROM journal j
     WHERE j.cluster > (SELECT cluster FROM sealed)
        AND (SELECT cluster FROM sealed) < (SELECT max(cluster) FROM clusters)
     ORDER BY j.xid, j.seq LIMIT 1));

-- name: journal_unsealed_at [sqlite]
-- differs because one writer commits in order: seq alone is safe.
-- scope: system (retention)
SELECT j.at FROM journal j
WHERE j.seq > coalesce((SELECT s.to_seq FROM seals s WHERE s.sealed_at < :before
    ORDER BY s.block DESC LIMIT 1), 0)
ORDER BY j.seq LIMIT 1;

-- name: counter_raise
-- Raise a named counter; it never decreases.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = greatest(counters.value, excluded.value);

-- name: journal_prune [postgres]
-- Drop sealed partitions past the retention.
-- scope: system (retention)
SELECT drop_partitions('journal', :before);
DELETE FROM journal_rest WHERE ctid IN (
    SELECT ctid FROM journal_rest WHERE at < :before LIMIT :n);

-- name: journal_prune [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (retention)
DELETE FROM journal WHERE seq IN (SELECT seq FROM journal WHERE at < :before LIMIT :n);

-- name: requests_prune
-- Delete expired idempotency keys.
-- scope: system (retention)
DELETE FROM requests WHERE expires_at < {{now}};

-- name: ledger_prune
-- Delete old records of occurrences that did not start, in chunks.
-- scope: system (retention)
DELETE FROM ledger WHERE (config_id, slot_from) IN (
    SELECT config_id, slot_from FROM ledger WHERE at < :before LIMIT :n);

-- fragment: past_alert
-- In the order of the columns of `past_alerts`.
a.alert_id, a.customer, a.subject_kind, a.subject, a.rule, a.opened_at, a.last_at,
    {{pg:a.detail::json}}{{lite:a.detail}} ->> 'phase',
    {{pg:a.detail::json}}{{lite:a.detail}} ->> 'processor'

-- name: alerts_prune [postgres]
-- Delete resolved alerts, in chunks. What the execution log needs of them remains.
-- scope: system (retention)
WITH gone AS (
    DELETE FROM alerts WHERE alert_id IN (
        SELECT alert_id FROM alerts WHERE state = 'resolved' AND closed_at < :before LIMIT :n)
    RETURNING *
), kept AS (
    INSERT INTO past_alerts SELECT {{past_alert}} FROM gone a
    WHERE a.subject_kind IN ('run', 'flow', 'config', 'subscription')
    ON CONFLICT (alert_id) DO NOTHING
)
SELECT 1 FROM gone;

-- name: alerts_prune [sqlite]
-- differs because SQLite has no data-modifying CTEs: the same rows are chosen twice.
-- scope: system (retention)
INSERT OR IGNORE INTO past_alerts SELECT {{past_alert}} FROM alerts a WHERE a.alert_id IN (
    SELECT alert_id FROM alerts WHERE state = 'resolved' AND closed_at < :before
    ORDER BY closed_at, alert_id LIMIT :n)
    AND a.subject_kind IN ('run', 'flow', 'config', 'subscription');
DELETE FROM alerts WHERE alert_id IN (
    SELECT alert_id FROM alerts WHERE state = 'resolved' AND closed_at < :before
    ORDER BY closed_at, alert_id LIMIT :n);

-- name: past_alerts_prune
-- Delete what is left of alerts older than every execution, in chunks.
-- scope: system (retention)
DELETE FROM past_alerts WHERE alert_id IN (
    SELECT alert_id FROM past_alerts WHERE last_at < :before LIMIT :n);

-- name: dead_letters_prune
-- Delete replayed and discarded dead letters, in chunks.
-- scope: system (retention)
DELETE FROM dead_letters WHERE dead_letter_id IN (
    SELECT dead_letter_id FROM dead_letters WHERE status <> 'open' AND resolved_at < :before
    LIMIT :n);

-- name: dead_letters_open_prune
-- Delete open dead letters whose run or message is long gone, in chunks.
-- scope: system (retention)
DELETE FROM dead_letters WHERE dead_letter_id IN (
    SELECT dead_letter_id FROM dead_letters WHERE status = 'open' AND died_at < :before
    ORDER BY died_at LIMIT :n);

-- name: interventions_prune
-- Delete resolved interventions, in chunks.
-- scope: system (retention)
DELETE FROM interventions WHERE intervention_id IN (
    SELECT intervention_id FROM interventions WHERE status = 'resolved' AND resolved_at < :before
    LIMIT :n);

-- name: overrides_prune
-- Delete overrides that expired long ago, revoked or not, in chunks. Executions keep what they used.
-- scope: system (retention)
DELETE FROM overrides WHERE override_id IN (
    SELECT override_id FROM overrides WHERE expires_at < :before LIMIT :n);

-- name: sums_aggregate [postgres]
-- Aggregate deltas into one row per hour and state; rows locked by others are left for later.
-- scope: system (operators)
WITH taken AS MATERIALIZED (
    SELECT sum_id FROM run_sums WHERE hour_at < :before ORDER BY sum_id LIMIT :n
    FOR UPDATE SKIP LOCKED
), old AS (
    DELETE FROM run_sums WHERE sum_id IN (SELECT sum_id FROM taken)
    RETURNING hour_at, final_state, runs, duration_us, sla_breaches
)
INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches)
SELECT hour_at, final_state, sum(runs), sum(duration_us), sum(sla_breaches) FROM old
GROUP BY hour_at, final_state;

-- name: sums_aggregate [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (operators)
CREATE TEMP TABLE IF NOT EXISTS old_sums (sum_id integer PRIMARY KEY);
DELETE FROM temp.old_sums;
INSERT INTO temp.old_sums
SELECT sum_id FROM run_sums WHERE hour_at < :before ORDER BY sum_id LIMIT :n;
INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches)
SELECT hour_at, final_state, sum(runs), sum(duration_us), sum(sla_breaches) FROM run_sums
WHERE sum_id IN (SELECT sum_id FROM temp.old_sums) GROUP BY hour_at, final_state;
DELETE FROM run_sums WHERE sum_id IN (SELECT sum_id FROM temp.old_sums);

-- name: sums_aggregatable
-- Whether aggregation would save rows.
-- scope: system (operators)
SELECT count(*), count(DISTINCT hour_at || final_state) FROM run_sums WHERE hour_at < :before;

-- name: cohort_sums_aggregate [postgres]
-- Aggregate the newest deltas into one row per occurrence and processor; rows locked by others are
-- left for later.
-- scope: system (retention)
WITH taken AS MATERIALIZED (
    SELECT sum_id FROM cohort_sums ORDER BY sum_id DESC LIMIT :n FOR UPDATE SKIP LOCKED
), old AS (
    DELETE FROM cohort_sums WHERE sum_id IN (SELECT sum_id FROM taken)
    RETURNING slot, processor, completed, dead, cancelled, ended_at
)
INSERT INTO cohort_sums (slot, processor, completed, dead, cancelled, ended_at)
SELECT slot, processor, sum(completed), sum(dead), sum(cancelled), max(ended_at) FROM old
GROUP BY slot, processor;

-- name: cohort_sums_aggregate [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (retention)
CREATE TEMP TABLE IF NOT EXISTS old_cohorts (sum_id integer PRIMARY KEY);
DELETE FROM temp.old_cohorts;
INSERT INTO temp.old_cohorts SELECT sum_id FROM cohort_sums ORDER BY sum_id DESC LIMIT :n;
INSERT INTO cohort_sums (slot, processor, completed, dead, cancelled, ended_at)
SELECT slot, processor, sum(completed), sum(dead), sum(cancelled), max(ended_at) FROM cohort_sums
WHERE sum_id IN (SELECT sum_id FROM temp.old_cohorts) GROUP BY slot, processor;
DELETE FROM cohort_sums WHERE sum_id IN (SELECT sum_id FROM temp.old_cohorts);

-- name: cohort_sums_aggregatable
-- Whether aggregation of the newest deltas would save rows.
-- scope: system (retention)
SELECT count(*), count(DISTINCT k.slot || '/' || k.processor)
FROM (SELECT slot, processor FROM cohort_sums ORDER BY sum_id DESC LIMIT :n) AS k;

-- name: cohort_sums_prune
-- Delete the sums of old occurrences, in chunks.
-- scope: system (retention)
DELETE FROM cohort_sums WHERE sum_id IN (
    SELECT sum_id FROM cohort_sums WHERE slot < :before ORDER BY slot LIMIT :n);

-- name: aggregate_horizon
-- The time up to which history is aggregated into customer days; locked.
-- scope: system (retention)
INSERT INTO counters (name, value) VALUES ('folded_to', 0) ON CONFLICT (name) DO NOTHING;
SELECT value FROM counters WHERE name = 'folded_to' {{pg:FOR UPDATE}};

-- name: history_aggregate
-- Add runs that ended in (after, until] to their customers' days and move the horizon.
-- scope: system (all customers at once)
INSERT INTO customer_days (customer, day_at, provider, final_state, runs, duration_us, sla_met,
    sla_runs, sla_kept)
SELECT h.customer, h.slot - h.slot % 86400000000, h.provider, h.final_state, count(*),
    sum(h.finished_at - coalesce(h.started_at, h.finished_at)),
    sum(CASE WHEN h.sla_met THEN 1 ELSE 0 END), sum({{sla_runs}}), sum({{sla_kept}})
FROM history h WHERE h.finished_at > :after AND h.finished_at <= :until
GROUP BY 1, 2, 3, 4
ON CONFLICT (customer, day_at, provider, final_state) DO UPDATE SET
    runs = customer_days.runs + excluded.runs,
    duration_us = customer_days.duration_us + excluded.duration_us,
    sla_met = customer_days.sla_met + excluded.sla_met,
    sla_runs = customer_days.sla_runs + excluded.sla_runs,
    sla_kept = customer_days.sla_kept + excluded.sla_kept;
UPDATE counters SET value = :until WHERE name = 'folded_to';

-- name: store_sizes [postgres]
-- Approximate row counts of the tables, for doctor.
-- scope: system (operators)
SELECT relname::text, greatest(reltuples, 0)::bigint FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
ORDER BY 1;

-- name: store_sizes [sqlite]
-- differs because SQLite keeps no statistics: the hot tables are counted.
-- scope: system (operators)
SELECT 'configs', count(*) FROM configs
UNION ALL SELECT 'runs', count(*) FROM runs
UNION ALL SELECT 'sessions', count(*) FROM sessions
UNION ALL SELECT 'outbox', count(*) FROM outbox;

-- name: dead_rows [postgres]
-- The tables of this user with dead rows to vacuum, most dead rows first, and the horizon: a dead
-- row that a transaction deleted after it cannot be removed yet. NULL if nothing holds one back.
-- It is held by the oldest snapshot of a session (a vacuum has one that other vacuums ignore), by a
-- replication slot whose standby reports its queries, or by a prepared transaction. The horizon is
-- the transaction id that they show: one calculated from its age varies with the number of
-- transactions that are open. Also how many rows were updated or deleted so far: at most as many
-- have become dead.
-- scope: system (statistics, no rows)
SELECT t.relname::text, t.n_dead_tup, t.n_tup_upd + t.n_tup_del,
    (SELECT h.xmin::text::bigint FROM (
        SELECT a.backend_xmin AS xmin FROM pg_stat_activity a
        WHERE a.pid <> pg_backend_pid() AND (a.datid IS NULL OR a.datname = current_database())
            AND a.pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
        UNION ALL SELECT s.xmin FROM pg_replication_slots s
        UNION ALL SELECT p.transaction FROM pg_prepared_xacts p
            WHERE p.database = current_database()) AS h
     WHERE h.xmin IS NOT NULL ORDER BY age(h.xmin) DESC LIMIT 1)
FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
WHERE t.schemaname = current_schema() AND pg_has_role(c.relowner, 'USAGE')
    AND t.n_dead_tup >= greatest(:dead_min, t.n_live_tup / 5)
ORDER BY t.n_dead_tup DESC;

-- name: dead_rows [sqlite]
-- differs because SQLite keeps no dead rows.
-- scope: system (statistics, no rows)
SELECT '', 0, 0, 0 WHERE :dead_min IS NULL;

-- name: snapshot_holders [postgres]
-- What keeps dead rows newer than it: sessions and prepared transactions that have been open for a
-- long time, oldest first, and replication slots with the snapshot of a standby that is gone, or
-- that is far behind. A session of another user shows only its process id without
-- pg_read_all_stats. The log that a slot keeps is measured on a primary only.
-- scope: system (statistics, no rows)
(SELECT 'session', CAST(a.pid AS text), coalesce(a.application_name, ''),
    coalesce(a.usename::text, ''), coalesce(a.state, ''),
    CAST(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000 AS bigint),
    CAST(0 AS bigint), CAST(0 AS bigint), 'SELECT pg_terminate_backend(' || a.pid || ')'
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
    AND a.backend_type = 'client backend' AND a.application_name NOT LIKE '%-vacuum'
    AND a.xact_start < clock_timestamp() - :older_us * interval '1 microsecond'
ORDER BY a.xact_start LIMIT 5)
UNION ALL
(SELECT 'prepared', p.gid, '', p.owner::text, '',
    CAST(extract(epoch FROM clock_timestamp() - p.prepared) * 1000000 AS bigint),
    CAST(age(p.transaction) AS bigint), 0, 'ROLLBACK PREPARED ' || quote_literal(p.gid)
FROM pg_prepared_xacts p
WHERE p.database = current_database()
    AND p.prepared < clock_timestamp() - :older_us * interval '1 microsecond'
ORDER BY p.prepared LIMIT 5)
UNION ALL
(SELECT 'slot', s.slot_name::text, '', '', CASE WHEN s.active THEN 'active' ELSE 'unused' END, 0,
    CAST(age(s.xmin) AS bigint),
    CASE WHEN pg_is_in_recovery() THEN 0
        ELSE CAST(coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0) AS bigint) END,
    'SELECT pg_drop_replication_slot(' || quote_literal(s.slot_name) || ')'
FROM pg_replication_slots s
WHERE s.xmin IS NOT NULL AND (NOT s.active OR age(s.xmin) >= :behind_min)
ORDER BY age(s.xmin) DESC LIMIT 5);

-- name: snapshot_holders [sqlite]
-- differs because a reader of SQLite keeps no dead rows.
-- scope: system (statistics, no rows)
SELECT '', '', '', '', '', 0, 0, 0, '' WHERE :older_us IS NULL AND :behind_min IS NULL;

-- name: durability_warnings [postgres]
-- Server settings under which a machine crash may lose a commit or tear a page.
-- scope: system (no customer's rows)
SELECT name FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
ORDER BY name;

-- name: durability_warnings [sqlite]
-- differs because every SQLite connection requests durable commits itself.
-- scope: system (no customer's rows)
SELECT name FROM (SELECT 'synchronous' AS name) AS s WHERE FALSE;

-- name: newest_times
-- The current time, and the latest time that any process has recorded: heartbeats, the newest
-- journal entries and the time up to which schedules are evaluated.
-- scope: system (times only)
SELECT {{now}}, greatest(
    coalesce((SELECT max(beat_at) FROM sessions), 0),
    coalesce((SELECT max(j.at) FROM (
        SELECT at FROM journal ORDER BY {{pg:xid DESC, }}seq DESC LIMIT 100) AS j), 0),
    coalesce((SELECT max(evaluated_to) FROM schedule), 0));

-- name: sessions_clip
-- After the clock was set back, make leases that were renewed at a time later than now start now; a
-- live process renews its lease within seconds.
-- scope: system (operators)
UPDATE sessions SET until_at = {{now}} + greatest(0, until_at - beat_at), beat_at = {{now}}
WHERE beat_at > {{now}} RETURNING session_id, name;

-- name: runs_in_progress
-- The current time, and the held runs: how many, the oldest one, since when, and when the newest one
-- was claimed.
-- scope: system (operators)
SELECT {{now}}, count(*), min(run_id), min(coalesce(started_at, claimed_at)), max(claimed_at)
FROM runs WHERE admission = 9;

-- name: store_write_check
-- Write a row to test that writes succeed; fails on a full disk or a read-only server.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES ('write_check', {{now}})
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: store_ping
-- Check that the database responds.
-- scope: system (no customer's rows)
SELECT 1;
