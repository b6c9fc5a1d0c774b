-- Snapshots: the state of a subscription at a time.

-- fragment: snapshot_columns
n.snapshot, n.customer, n.name, n.topic, t.name, n.subscription, n.taken_at, n.oldest_at,
n.expires_at, n.labels

-- fragment: was_open
-- Whether the snapshot's subscription had not settled message `m` before the snapshot was taken.
(EXISTS (SELECT 1 FROM settled e WHERE e.message_id = m.message_id
        AND e.subscription = :source AND e.at >= :taken_at
        AND coalesce(e.born_at, e.published_at) <= :taken_at)
    OR EXISTS (SELECT 1 FROM deliveries o WHERE o.subscription = :source
        AND o.message_id = m.message_id AND o.born_at <= :taken_at))

-- name: bus_snapshot_add
-- Take a snapshot of a subscription.
-- scope: system (the parameters name the customer)
INSERT INTO snapshots (customer, name, topic, subscription, taken_at, oldest_at, expires_at, labels,
    created_by)
VALUES (:customer, :name, :topic, :subscription, {{now}}, :oldest_at, :expires_at, :labels, :actor)
ON CONFLICT (customer, name) DO NOTHING
RETURNING snapshot;

-- name: bus_snapshot_get
-- A snapshot by name.
SELECT {{snapshot_columns}} FROM snapshots n JOIN topics t ON t.topic = n.topic
WHERE n.customer = :customer AND n.name = :name AND n.expires_at > {{now}};

-- name: bus_snapshot_list
-- Snapshots by name, of one topic or of all.
SELECT {{snapshot_columns}} FROM snapshots n JOIN topics t ON t.topic = n.topic
WHERE n.customer = :customer AND n.name > :after AND n.expires_at > {{now}}
    AND (CAST(:topic AS bigint) IS NULL OR n.topic = :topic)
ORDER BY n.name LIMIT :limit;

-- name: bus_snapshot_change
-- Change the labels and the expiry of a snapshot.
UPDATE snapshots SET labels = :labels, expires_at = :expires_at
WHERE snapshot = :snapshot AND customer = :customer;

-- name: bus_snapshot_delete
-- Delete a snapshot.
DELETE FROM snapshots WHERE customer = :customer AND name = :name RETURNING snapshot;

-- name: bus_snapshots_prune
-- Delete expired snapshots.
-- scope: system (retention)
DELETE FROM snapshots WHERE snapshot IN (
    SELECT snapshot FROM snapshots WHERE expires_at <= {{now}} ORDER BY expires_at LIMIT :n);

-- name: bus_snapshot_open
-- The next unsettled deliveries of a subscription that were published before a snapshot, and
-- whether the snapshot contains them.
-- scope: system (the caller has checked the subscription's customer)
SELECT m.message_id, m.epoch, {{was_open}} AS is_kept FROM deliveries m
WHERE m.subscription = :subscription AND m.published_at <= :taken_at AND m.message_id > :after_id
ORDER BY m.message_id LIMIT :n;

-- name: bus_snapshot_purge_count
-- How many of the unsettled deliveries published before a snapshot it does not contain, among the
-- first `visited`.
-- scope: system (the caller has checked the subscription's customer)
SELECT count(*) FROM (
    SELECT d.message_id FROM deliveries d
    WHERE d.subscription = :subscription AND d.published_at <= :taken_at
    ORDER BY d.message_id LIMIT :visited) AS m
WHERE NOT {{was_open}};

-- name: bus_snapshot_settled
-- The last generations of settled messages that a snapshot contains or that are newer than it.
-- scope: system (the caller has checked the subscription's customer)
SELECT m.message_id, m.published_at, m.ordering_key, s.round, s.epoch, s.replays
FROM messages m JOIN settled s ON s.message_id = m.message_id AND s.subscription = :subscription
WHERE m.topic = :topic AND (m.published_at, m.message_id) > (:after_at, :after_id)
    AND m.published_at <= :until AND s.at <= :until
    AND s.round = (SELECT max(o.round) FROM settled o WHERE o.message_id = m.message_id
        AND o.subscription = :subscription)
    AND (SELECT d.message_id FROM deliveries d WHERE d.subscription = :subscription
        AND d.message_id = m.message_id) IS NULL
    AND (m.published_at > :taken_at OR {{was_open}})
ORDER BY m.published_at, m.message_id LIMIT :n;
