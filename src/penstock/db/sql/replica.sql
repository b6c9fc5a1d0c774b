-- Read replicas: how far they are behind.

-- name: wal_position [postgres]
-- Position in the write-ahead log: what a primary has written, or a standby has replayed.
-- scope: system (no rows)
SELECT CAST(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
    ELSE pg_current_wal_lsn() END, '0/0') AS bigint);

-- name: wal_position [sqlite]
-- differs because SQLite has no replicas.
-- scope: system (no rows)
SELECT 0;
