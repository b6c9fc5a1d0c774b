-- Publishing: ids, dedupe ids, messages, and a delivery for each matching subscription.

-- name: bus_keys_lock [postgres]
-- Serialize publishing and settling per ordering key; taken before the statement that reads. A key
-- uses one of 1024 locks of its topic, so that no batch exhausts the lock table.
-- scope: system (a lock, no rows)
-- batch: ordering_key text
SELECT pg_advisory_xact_lock(CAST(:topic % 2147483647 AS integer), k.place) FROM (
    SELECT DISTINCT CAST(hashtextextended(batch.ordering_key, 7) & 1023 AS integer) AS place
    FROM {{batch}} ORDER BY 1) AS k;

-- name: bus_keys_lock [sqlite]
-- differs because SQLite has one writer: nothing to lock.
-- scope: system (a lock, no rows)
-- batch: ordering_key text
SELECT 1 WHERE :topic IS NULL;

-- name: bus_message_ids [postgres]
-- Ids for messages to be written, and their publish time.
-- scope: system (sequence numbers only)
SELECT nextval('message_seq'), {{now}} FROM generate_series(1, :n);

-- name: bus_message_ids [sqlite]
-- differs because SQLite has no sequences: the only writer continues from the last id.
-- scope: system (sequence numbers only)
WITH RECURSIVE places (place) AS (
    SELECT 1 UNION ALL SELECT place + 1 FROM places WHERE place < :n)
SELECT coalesce((SELECT seq FROM main.sqlite_sequence WHERE name = 'messages'), 0) + place, {{now}}
FROM places;

-- name: bus_dedupe_put
-- Store the dedupe ids of messages. Returns the new ones; the others were published before.
-- scope: system (the parameters name the customer)
-- batch: dedupe_id text, body_hash text, message_id bigint
INSERT INTO publish_marks (topic, dedupe_id, customer, body_hash, message_id, published_at)
SELECT :topic, batch.dedupe_id, :customer, batch.body_hash, batch.message_id, :at
FROM {{batch}} WHERE TRUE ORDER BY batch.dedupe_id
ON CONFLICT (topic, dedupe_id) DO NOTHING
RETURNING dedupe_id;

-- name: bus_dedupe_get
-- Messages published under dedupe ids.
-- scope: system (by topic; the caller has checked its customer)
SELECT dedupe_id, body_hash, message_id FROM publish_marks
WHERE topic = :topic AND dedupe_id {{any ids}};

-- name: bus_messages_put
-- Insert messages.
-- scope: system (the parameters name the customer)
-- batch: message_id bigint, data bytea, attributes text, ordering_key text, correlation_id text
INSERT INTO messages (message_id, topic, customer, data, attributes, ordering_key, published_at,
    expires_at, correlation_id)
SELECT batch.message_id, :topic, :customer, batch.data, batch.attributes, batch.ordering_key, :at,
    :expires_at, batch.correlation_id
FROM {{batch}} WHERE TRUE ORDER BY ord;

-- name: bus_messages_copy
-- Insert messages that reuse the content of others: dead letters.
-- scope: system (the parameters name the customer)
-- batch: message_id bigint, content_id bigint, content_at bigint, attributes text,
--   correlation_id text
INSERT INTO messages (message_id, topic, customer, data, attributes, ordering_key, published_at,
    expires_at, correlation_id)
SELECT batch.message_id, :topic, :customer, m.data, batch.attributes, m.ordering_key, :at,
    :expires_at, batch.correlation_id
FROM {{batch}} JOIN messages m ON m.message_id = batch.content_id
    AND m.published_at = batch.content_at {{pg:AND m.message_id = ANY(:b_content_id::bigint[])}}
WHERE TRUE ORDER BY batch.ord;

-- name: bus_deliveries_put
-- Insert deliveries: ready, or behind another message of the same key.
-- scope: system (the parameters name the customer)
-- batch: subscription bigint, message_id bigint, ordering_key text, follows boolean
INSERT INTO deliveries (subscription, message_id, customer, published_at, born_at, state, due_at,
    ordering_key)
SELECT batch.subscription, batch.message_id, :customer, :at, :at,
    CASE WHEN batch.follows THEN 3
        WHEN batch.ordering_key IS NOT NULL AND (
            SELECT h.message_id FROM deliveries h WHERE h.subscription = batch.subscription
                AND h.ordering_key = batch.ordering_key AND h.ordering_key IS NOT NULL
                AND h.state <> 3 LIMIT 1) IS NOT NULL THEN 3
        ELSE 0 END,
    :at, batch.ordering_key
FROM {{batch}} WHERE TRUE ORDER BY ord;

-- name: bus_sums_add
-- Add deltas to the counters of subscriptions for this hour.
-- scope: system (the parameters name the customer)
-- batch: subscription bigint, customer bigint, accepted bigint, nacked bigint, lapsed bigint,
--   replayed bigint
INSERT INTO delivery_sums (subscription, customer, hour_at, accepted, nacked, lapsed, replayed)
SELECT batch.subscription, batch.customer, {{now}} - {{now}} % 3600000000, batch.accepted,
    batch.nacked, batch.lapsed, batch.replayed
FROM {{batch}} WHERE TRUE ORDER BY ord;
