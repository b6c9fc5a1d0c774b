-- Upkeep of the bus: delete expired rows, aggregate sums. Run by the pruner.

-- name: bus_messages_prune [postgres]
-- Drop weeks whose messages have all expired; delete rows outside them in chunks.
-- scope: system (retention)
SELECT drop_messages(:before);
DELETE FROM messages_rest WHERE ctid IN (
    SELECT ctid FROM messages_rest WHERE expires_at < :before LIMIT :n);

-- name: bus_messages_prune [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (retention)
DELETE FROM messages WHERE message_id IN (
    SELECT message_id FROM messages WHERE expires_at < :before ORDER BY expires_at LIMIT :n);

-- name: bus_settled_prune [postgres]
-- Delete old settled deliveries; their counters are kept.
-- scope: system (retention)
SELECT drop_partitions('settled', :before);
DELETE FROM settled_rest WHERE ctid IN (
    SELECT ctid FROM settled_rest WHERE at < :before LIMIT :n);

-- name: bus_settled_prune [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (retention)
DELETE FROM settled WHERE rowid IN (
    SELECT rowid FROM settled WHERE at < :before ORDER BY at LIMIT :n);

-- name: bus_failures_prune
-- Delete old failed attempts of deliveries, in chunks.
-- scope: system (retention)
DELETE FROM delivery_failures WHERE failure_id IN (
    SELECT failure_id FROM delivery_failures WHERE at < :before ORDER BY at LIMIT :n);

-- name: bus_dedupe_prune
-- Delete dedupe ids whose window has passed.
-- scope: system (retention)
DELETE FROM publish_marks WHERE (topic, dedupe_id) IN (
    SELECT topic, dedupe_id FROM publish_marks WHERE published_at < :before
    ORDER BY published_at LIMIT :n);

-- name: bus_sums_aggregatable
-- Whether aggregation would save rows.
-- scope: system (operators)
SELECT count(*), count(DISTINCT (subscription || ':' || hour_at)) FROM delivery_sums;

-- fragment: sums_folded
INSERT INTO delivery_sums (subscription, customer, hour_at, accepted, delivered, acked, nacked,
    lapsed, dead_lettered, expired, purged, replayed)
SELECT o.subscription, o.customer, o.hour_at, sum(o.accepted), sum(o.delivered), sum(o.acked),
    sum(o.nacked), sum(o.lapsed), sum(o.dead_lettered), sum(o.expired), sum(o.purged),
    sum(o.replayed)

-- name: bus_sums_aggregate [postgres]
-- Aggregate deltas into one row per hour and subscription; rows locked by others are left for
-- later.
-- scope: system (operators)
WITH taken AS MATERIALIZED (
    SELECT sum_id FROM delivery_sums ORDER BY sum_id LIMIT :n FOR UPDATE SKIP LOCKED
), old AS (
    DELETE FROM delivery_sums WHERE sum_id IN (SELECT sum_id FROM taken)
    RETURNING *
)
{{sums_folded}} FROM old o GROUP BY o.subscription, o.customer, o.hour_at;

-- name: bus_sums_aggregate [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (operators)
CREATE TEMP TABLE IF NOT EXISTS old_delivery_sums (sum_id integer PRIMARY KEY);
DELETE FROM temp.old_delivery_sums;
INSERT INTO temp.old_delivery_sums SELECT sum_id FROM delivery_sums ORDER BY sum_id LIMIT :n;
{{sums_folded}} FROM delivery_sums o
WHERE o.sum_id IN (SELECT sum_id FROM temp.old_delivery_sums)
GROUP BY o.subscription, o.customer, o.hour_at;
DELETE FROM delivery_sums WHERE sum_id IN (SELECT sum_id FROM temp.old_delivery_sums);
