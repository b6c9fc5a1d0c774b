-- Bound subscriptions: which configs a topic starts.

-- name: topics_unbound
-- Topics that active configs wait for and that have no bound subscription yet.
-- scope: system (a customer's configs listen to its own topics and system topics)
SELECT {{topic_columns}}
FROM topics t
WHERE NOT EXISTS (SELECT 1 FROM subscriptions s WHERE s.customer = t.customer
        AND s.name = t.name || '.configs' AND s.deleted_at IS NULL)
    AND EXISTS (SELECT 1 FROM configs f WHERE f.event_topic = t.name AND f.event_topic IS NOT NULL
        AND f.is_active AND f.deleted_at IS NULL AND t.customer IN (0, f.customer))
ORDER BY t.topic LIMIT :n;

-- name: topics_awaited
-- Built-in topics that active configs wait for and that were not created yet. Declared phases are
-- few, so each of their topics is looked up among the configs.
-- scope: system (declarations and system topics have no customer)
-- batch: name text
SELECT b.name FROM (
    SELECT batch.name FROM {{batch}}
    UNION SELECT l.name || '.' || p.phase || '.complete'
        FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline
    UNION SELECT l.name || '.' || p.phase || '.trigger'
        FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline AND l.has_flow
) b
WHERE EXISTS (SELECT 1 FROM configs f WHERE f.event_topic = b.name AND f.event_topic IS NOT NULL
        AND f.is_active AND f.deleted_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM topics t WHERE t.customer = 0 AND t.name = b.name)
ORDER BY b.name;

-- name: config_event_list
-- Active configs that a topic starts, in order.
-- scope: system (the topic's owner is in :customer; system topics start configs of all customers)
SELECT f.config_id, f.event_filter
FROM configs f JOIN customers c ON c.customer = f.customer
WHERE f.event_topic = :topic AND f.event_topic IS NOT NULL
    AND f.schedule_type = 'EVENT_DRIVEN' AND f.is_active AND f.deleted_at IS NULL
    AND f.config_id > :after
    AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer)
    AND (CAST(:customer_id AS text) IS NULL OR c.customer_id = :customer_id)
ORDER BY f.config_id LIMIT :limit;

-- name: config_skip_event
-- Record that a message did not start a config because its previous run has not ended.
-- scope: system (the caller locked the config)
INSERT INTO ledger (config_id, slot_from, slot_to, slots, outcome, at)
VALUES (:config_id, {{now}}, {{now}}, 1, 'skipped_overlap', {{now}})
ON CONFLICT (config_id, slot_from) DO UPDATE SET slots = ledger.slots + 1;

-- name: customer_name
-- A customer's name.
-- scope: system (the caller serves that customer)
SELECT customer_id FROM customers WHERE customer = :customer;

-- name: subscriptions_auto
-- Subscriptions with automatic replay and open dead letters.
-- scope: system (services)
SELECT {{subscription_columns}} FROM subscriptions s {{subscription_joins}}
WHERE s.deleted_at IS NULL AND s.auto_replay IS NOT NULL AND NOT s.is_paused
    AND s.subscription > :after
    AND EXISTS (SELECT 1 FROM dead_letters d WHERE d.subscription = s.subscription
        AND d.kind = 'delivery' AND d.status = 'open')
ORDER BY s.subscription LIMIT :n;
