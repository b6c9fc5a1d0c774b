-- Changes since a position in the journal: hints for open pages.

-- name: changes_end [postgres]
-- The position before the entries of transactions that have not ended.
-- scope: system (a position, no customer's rows)
SELECT (SELECT max(cluster) FROM clusters), pg_snapshot_xmin(pg_current_snapshot())::text, -1;

-- name: changes_end [sqlite]
-- differs because one writer commits in order: seq alone is a position.
-- scope: system (a position, no customer's rows)
SELECT 0, '0', coalesce((SELECT max(seq) FROM journal), 0);

-- name: changes_after [postgres]
-- The subjects of the next entries, in commit-safe order.
-- scope: system (each row names its customer, and only viewers who see it get a hint)
SELECT j.xid::text, j.seq, j.kind, j.subject, j.customer,
    coalesce(j.to_state, '')
FROM journal j
WHERE j.cluster = :cluster
    AND (j.xid, j.seq) > (CAST(:after_xid AS text)::xid8, CAST(:after_seq AS bigint))
    AND j.xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY j.xid, j.seq LIMIT :n;

-- name: changes_after [sqlite]
-- differs because one writer commits in order: seq alone is safe.
-- scope: system (as above)
SELECT '0', j.seq, j.kind, j.subject, j.customer,
    coalesce(j.to_state, '')
FROM journal j
WHERE j.seq > :after_seq AND :after_xid IS NOT NULL AND j.cluster = :cluster
ORDER BY j.seq LIMIT :n;

-- name: changes_alerts
-- Figures about unresolved alerts, by customer; they differ after each change.
-- scope: system (as above)
SELECT a.customer, count(*), sum(a.times), max(a.last_at), max(coalesce(a.acknowledged_at, 0)),
    sum(coalesce(a.silence, 0))
FROM (SELECT customer, times, last_at, acknowledged_at, silence FROM alerts
    WHERE state <> 'resolved' ORDER BY rule, alert_id LIMIT :n) AS a
GROUP BY a.customer;

-- name: changes_counters [postgres]
-- Counters that grow with each claim of a run and each message.
-- scope: system (figures of the installation)
SELECT (SELECT last_value FROM token_seq), (SELECT last_value FROM message_seq);

-- name: changes_counters [sqlite]
-- differs because SQLite has no sequences.
-- scope: system (figures of the installation)
SELECT (SELECT value FROM counters WHERE name = 'token'),
    coalesce((SELECT max(message_id) FROM messages), 0);
