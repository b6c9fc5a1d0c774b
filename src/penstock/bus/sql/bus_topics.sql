-- Topics and subscriptions: declare, change, delete, list.

-- fragment: topic_columns
t.topic, t.customer, t.name, t.retention_us, t.created_at, t.created_by, t.labels, t.schema_settings

-- fragment: subscription_settings
kind, ack_deadline_us, min_backoff_us, max_backoff_us, max_attempts, dead_letter_topic,
retention_us, filter, push, binding, auto_replay, replays_max, labels, is_exactly_once,
keeps_acked, expires_after_us

-- fragment: subscription_columns
s.subscription, s.customer, s.name, s.topic, t.name, d.name, s.is_ordered, s.is_paused, s.version,
s.created_at, s.created_by, s.detached_at, {{s subscription_settings}}

-- fragment: subscription_joins
JOIN topics t ON t.topic = s.topic
LEFT JOIN topics d ON d.topic = s.dead_letter_topic AND d.deleted_at IS NULL

-- name: bus_topic_get
-- A topic by name.
SELECT {{topic_columns}} FROM topics t
WHERE t.customer = :customer AND t.name = :name AND t.deleted_at IS NULL;

-- name: bus_topic_put
-- Create a topic, or change its mutable settings.
-- scope: system (the parameters name the customer)
INSERT INTO topics (customer, name, retention_us, created_at, created_by, labels, schema_settings)
VALUES (:customer, :name, :retention_us, {{now}}, :actor, :labels, :schema_settings)
ON CONFLICT (customer, name) DO UPDATE SET retention_us = excluded.retention_us,
    labels = excluded.labels, schema_settings = excluded.schema_settings
RETURNING topic, customer, name, retention_us, created_at, created_by, labels, schema_settings;

-- name: bus_topic_delete
-- Delete a topic and free its name; its key stays for rows that refer to it.
UPDATE topics SET deleted_at = {{now}}, name = '_deleted_' || CAST(topic AS text)
WHERE topic = :topic AND customer = :customer AND deleted_at IS NULL RETURNING topic;

-- name: bus_topic_list
-- Topics by name.
SELECT {{topic_columns}} FROM topics t
WHERE t.customer = :customer AND t.name > :after AND t.deleted_at IS NULL
ORDER BY t.name LIMIT :limit;

-- name: bus_topic_open
-- A topic by key with its subscriptions, for publishing.
-- scope: system (the caller has checked the topic's customer)
SELECT t.topic, t.customer, t.name, t.retention_us, s.subscription, s.kind, s.filter, s.is_ordered,
    s.retention_us, t.schema_settings
FROM topics t LEFT JOIN subscriptions s ON s.topic = t.topic AND s.deleted_at IS NULL
    AND s.detached_at IS NULL
WHERE t.topic = :topic AND t.deleted_at IS NULL ORDER BY s.subscription;

-- name: bus_topic_open_named
-- A topic by name with its subscriptions, for publishing.
SELECT t.topic, t.customer, t.name, t.retention_us, s.subscription, s.kind, s.filter, s.is_ordered,
    s.retention_us, t.schema_settings
FROM topics t LEFT JOIN subscriptions s ON s.topic = t.topic AND s.deleted_at IS NULL
    AND s.detached_at IS NULL
WHERE t.customer = :customer AND t.name = :name AND t.deleted_at IS NULL ORDER BY s.subscription;

-- name: bus_subscription_get
-- A subscription by name.
SELECT {{subscription_columns}} FROM subscriptions s {{subscription_joins}}
WHERE s.customer = :customer AND s.name = :name AND s.deleted_at IS NULL;

-- name: bus_subscription_get_by_key
-- A subscription by key, optionally even if it is deleted.
-- scope: system (services, and callers that have checked its customer)
SELECT {{subscription_columns}} FROM subscriptions s {{subscription_joins}}
WHERE s.subscription = :subscription AND (:deleted OR s.deleted_at IS NULL);

-- name: bus_subscription_list
-- Subscriptions by name, filtered by customer, topic and kind.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{subscription_columns}} FROM subscriptions s {{subscription_joins}}
WHERE s.deleted_at IS NULL AND (CAST(:customer AS bigint) IS NULL OR s.customer = :customer)
    AND (CAST(:topic AS bigint) IS NULL OR s.topic = :topic)
    AND (CAST(:kind AS text) IS NULL OR s.kind = :kind)
    AND s.name > :after
ORDER BY s.name, s.subscription LIMIT :limit;

-- name: bus_subscription_add
-- Create a subscription.
-- scope: system (the parameters name the customer)
INSERT INTO subscriptions (customer, topic, name, is_ordered, created_at, created_by,
    {{subscription_settings}})
VALUES (:customer, :topic, :name, :is_ordered, {{now}}, :actor, {{params subscription_settings}})
ON CONFLICT (customer, name) WHERE deleted_at IS NULL DO NOTHING
RETURNING subscription;

-- name: bus_subscription_change
-- Change the mutable settings of a subscription; its topic and its ordering cannot change.
UPDATE subscriptions SET {{sets subscription_settings}}, version = version + 1
WHERE subscription = :subscription AND customer = :customer AND deleted_at IS NULL
RETURNING subscription;

-- name: bus_subscription_pause
-- Pause or resume a subscription.
UPDATE subscriptions SET is_paused = :is_paused, version = version + 1
WHERE subscription = :subscription AND customer = :customer AND deleted_at IS NULL
RETURNING subscription;

-- name: bus_subscription_delete
-- Delete a subscription; its key stays for rows that refer to it.
UPDATE subscriptions SET deleted_at = {{now}}, version = version + 1
WHERE subscription = :subscription AND customer = :customer AND deleted_at IS NULL
RETURNING subscription;

-- name: bus_subscription_detach
-- Detach a subscription from its topic: it receives nothing more.
UPDATE subscriptions SET detached_at = {{now}}, version = version + 1
WHERE subscription = :subscription AND customer = :customer AND deleted_at IS NULL
RETURNING subscription;

-- name: bus_without_dead_letters
-- Subscriptions whose messages could fail forever, for doctor; those that read dead letters are
-- left out.
-- scope: system (operators)
SELECT s.name FROM subscriptions s
LEFT JOIN topics d ON d.topic = s.dead_letter_topic AND d.deleted_at IS NULL
WHERE s.deleted_at IS NULL AND d.topic IS NULL AND NOT EXISTS (
    SELECT 1 FROM subscriptions o WHERE o.dead_letter_topic = s.topic AND o.deleted_at IS NULL)
ORDER BY s.name LIMIT :limit;

-- name: bus_phase_known
-- Whether a pipeline has a phase, named <pipeline>.<phase>; optionally only if it has flows.
-- scope: system (declarations have no customer)
SELECT 1 FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline
WHERE l.name || '.' || p.phase = :stem AND (l.has_flow OR NOT :with_flow) LIMIT 1;

-- name: bus_subscriptions_past_retention
-- Subscriptions whose oldest message is past their retention.
-- scope: system (sweep)
SELECT s.subscription FROM subscriptions s
WHERE s.deleted_at IS NULL AND (
    SELECT d.published_at FROM deliveries d WHERE d.subscription = s.subscription
    ORDER BY d.message_id LIMIT 1) <= {{now}} - s.retention_us
ORDER BY s.subscription LIMIT :n;
