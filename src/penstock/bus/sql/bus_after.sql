-- Dead letters, replays, seeks, purges and expiry of deliveries; message states and backlog.

-- name: bus_dead_letters_put
-- Insert dead letters of deliveries, one per generation.
-- scope: system (the parameters name the customer)
-- batch: subject bigint, message_id bigint, round bigint, error_type text, error_kind text,
--   error_details text, attempts bigint, partition text, correlation_id text, pipeline text
INSERT INTO dead_letters (kind, subject, customer, partition, correlation_id, error_type,
    error_details, attempts, died_at, subscription, topic, message_id, round, pipeline, error_kind)
SELECT 'delivery', batch.subject, :customer, batch.partition, batch.correlation_id,
    batch.error_type, batch.error_details, batch.attempts, {{now}}, :subscription, :topic,
    batch.message_id, batch.round,
    (SELECT p.pipeline FROM pipelines p WHERE p.name = batch.pipeline), batch.error_kind
FROM {{batch}} WHERE TRUE ORDER BY ord;

-- name: bus_settled_last
-- How the last generation of a delivery ended.
-- scope: system (the caller has checked the subscription's customer)
SELECT s.round, s.epoch, s.attempts, s.replays, s.outcome, s.published_at, s.at FROM settled s
WHERE s.message_id = :message_id AND s.subscription = :subscription
ORDER BY s.round DESC LIMIT 1;

-- name: bus_delivery_get
-- A delivery that is not settled.
-- scope: system (the caller has checked the subscription's customer)
SELECT d.state, d.round, d.attempt, d.epoch, d.replays FROM deliveries d
WHERE d.subscription = :subscription AND d.message_id = :message_id;

-- name: bus_generation_add
-- Insert a new generation of settled deliveries; deliveries in progress are not changed.
-- scope: system (the parameters name the customer)
-- batch: message_id bigint, round bigint, epoch bigint, replays bigint, published_at bigint,
--   copy_id bigint, ordering_key text, follows boolean, due_at bigint
INSERT INTO deliveries (subscription, message_id, customer, published_at, born_at, state, due_at,
    round, replays, epoch, ordering_key, copy_id)
SELECT :subscription, batch.message_id, :customer, batch.published_at, {{now}},
    CASE WHEN batch.follows THEN 3
        WHEN batch.ordering_key IS NOT NULL AND (
            SELECT h.message_id FROM deliveries h WHERE h.subscription = :subscription
                AND h.ordering_key = batch.ordering_key AND h.ordering_key IS NOT NULL
                AND h.state <> 3 LIMIT 1) IS NOT NULL THEN 3
        WHEN batch.due_at > {{now}} THEN 2
        ELSE 0 END,
    coalesce(batch.due_at, {{now}}), batch.round, batch.replays, batch.epoch, batch.ordering_key, batch.copy_id
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (subscription, message_id) DO NOTHING
RETURNING message_id;

-- name: bus_generation_undo
-- Delete generations that another transaction added and ended between our read and our insert. Runs
-- in a statement after the insert, when no other transaction can add one of these.
-- scope: system (the caller has just added the generations)
DELETE FROM deliveries WHERE subscription = :subscription AND message_id {{any ids}}
    AND round <= (SELECT max(s.round) FROM settled s WHERE s.message_id = deliveries.message_id
        AND s.subscription = :subscription)
RETURNING message_id, ordering_key;

-- name: bus_yield
-- Put a ready message that was never leased behind an earlier one of its key.
-- scope: system (the caller holds the keys' locks)
-- batch: ordering_key text
UPDATE deliveries SET state = 3
WHERE subscription = :subscription AND ordering_key IS NOT NULL AND state <> 3
    AND state = 0 AND attempt = 0
    AND ordering_key IN (SELECT batch.ordering_key FROM {{batch}})
    AND message_id > (
        SELECT b.message_id FROM deliveries b WHERE b.subscription = :subscription
            AND b.ordering_key = deliveries.ordering_key AND b.state = 3
        ORDER BY b.message_id LIMIT 1);

-- name: bus_retention_extend
-- Extend the retention of redelivered messages to that of their deliveries.
-- scope: system (the caller has checked the messages' customer)
-- batch: message_id bigint, published_at bigint
UPDATE messages SET expires_at = :expires_at
FROM {{batch}}
WHERE messages.message_id = batch.message_id AND messages.published_at = batch.published_at
    AND messages.expires_at < :expires_at;

-- name: bus_settled_since
-- The last generations of messages published since one time and settled by another, for seeks.
-- scope: system (the caller has checked the subscription's customer)
SELECT m.message_id, m.published_at, m.ordering_key, s.round, s.epoch, s.replays
FROM messages m JOIN settled s ON s.message_id = m.message_id AND s.subscription = :subscription
WHERE m.topic = :topic AND (m.published_at, m.message_id) > (:after_at, :after_id)
    AND m.published_at <= :until AND s.at <= :until
    AND s.round = (SELECT max(o.round) FROM settled o WHERE o.message_id = m.message_id
        AND o.subscription = :subscription)
    AND (SELECT d.message_id FROM deliveries d WHERE d.subscription = :subscription
        AND d.message_id = m.message_id) IS NULL
ORDER BY m.published_at, m.message_id LIMIT :n;

-- name: bus_before
-- The oldest deliveries of a subscription published before a time, in any state.
-- scope: system (the caller has checked the subscription's customer)
SELECT message_id, epoch FROM deliveries
WHERE subscription = :subscription AND published_at < :before ORDER BY message_id LIMIT :n;

-- name: bus_oldest
-- Publish time of the oldest waiting message.
-- scope: system (the caller has checked the subscription's customer)
SELECT published_at FROM deliveries WHERE subscription = :subscription
ORDER BY message_id LIMIT 1;

-- name: bus_past_retention
-- Deliveries created before a time and not leased, among the oldest.
-- scope: system (sweep)
SELECT o.message_id, o.epoch FROM (
    SELECT message_id, epoch, until_at, born_at FROM deliveries
    WHERE subscription = :subscription ORDER BY message_id LIMIT :look) AS o
WHERE o.born_at <= :before AND o.until_at IS NULL ORDER BY o.message_id LIMIT :n;

-- name: bus_subscriptions_deleted
-- Deleted subscriptions that still have deliveries.
-- scope: system (sweep)
SELECT s.subscription FROM subscriptions s
WHERE s.deleted_at IS NOT NULL AND (
    SELECT d.message_id FROM deliveries d WHERE d.subscription = s.subscription LIMIT 1) IS NOT NULL
ORDER BY s.subscription LIMIT :n;

-- name: bus_message_get
-- A message with its content.
-- scope: system (operators; a tenant's key adds :customer)
SELECT m.message_id, m.topic, t.name, m.customer, m.data, m.attributes, m.ordering_key,
    m.published_at, m.expires_at
FROM messages m JOIN topics t ON t.topic = m.topic
WHERE m.message_id = :message_id AND (CAST(:customer AS bigint) IS NULL OR m.customer = :customer);

-- name: bus_states_open
-- The state of a message in subscriptions that have not settled it.
-- scope: system (the caller has checked the message's customer)
SELECT d.subscription, s.name, d.state, d.round, d.attempt, d.epoch, d.replays, d.due_at,
    d.until_at, d.last_error
FROM deliveries d JOIN subscriptions s ON s.subscription = d.subscription
WHERE d.subscription {{any subscriptions}} AND d.message_id = :message_id ORDER BY d.subscription;

-- name: bus_states_settled
-- How the generations of a message ended, per subscription.
-- scope: system (the caller has checked the message's customer)
SELECT e.subscription, s.name, e.outcome, e.round, e.attempts, e.epoch, e.replays, e.at
FROM settled e JOIN subscriptions s ON s.subscription = e.subscription
WHERE e.message_id = :message_id ORDER BY e.subscription, e.round;

-- name: bus_subscriptions_ever
-- All subscriptions of a topic, including deleted ones.
-- scope: system (the caller has checked the topic's customer)
SELECT subscription FROM subscriptions WHERE topic = :topic ORDER BY subscription;

-- name: bus_backlogs
-- Counts of waiting deliveries in subscriptions, each up to a bound. Deliveries of a run that
-- follow their leased head count as leased.
-- scope: system (the caller has checked the subscriptions' customer)
SELECT s.subscription,
    (SELECT count(*) FROM (SELECT 1 FROM deliveries d WHERE d.subscription = s.subscription
        AND d.state = 0 LIMIT :bound) AS b),
    (SELECT count(*) FROM (SELECT 1 FROM deliveries d WHERE d.subscription = s.subscription
        AND d.state = 1 LIMIT :bound) AS b)
    + (SELECT count(*) FROM (SELECT d.until_at FROM deliveries d
        WHERE d.subscription = s.subscription AND d.state = 3 LIMIT :bound) AS b
        WHERE b.until_at IS NOT NULL),
    (SELECT count(*) FROM (SELECT 1 FROM deliveries d WHERE d.subscription = s.subscription
        AND d.state = 2 LIMIT :bound) AS b),
    (SELECT count(*) FROM (SELECT 1 FROM deliveries d WHERE d.subscription = s.subscription
        AND d.state = 3 AND d.until_at IS NULL LIMIT :bound) AS b),
    (SELECT d.published_at FROM deliveries d WHERE d.subscription = s.subscription
        ORDER BY d.message_id LIMIT 1)
FROM subscriptions s WHERE s.subscription {{any subscriptions}};

-- name: bus_sums_read
-- Counters of a subscription since a given hour.
-- scope: system (the caller has checked the subscription's customer)
SELECT sum(accepted), sum(delivered), sum(acked), sum(nacked), sum(lapsed), sum(dead_lettered),
    sum(expired), sum(purged), sum(replayed)
FROM delivery_sums WHERE subscription = :subscription AND hour_at >= :since;
