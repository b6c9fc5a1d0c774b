-- Search for any object: by id, by the newest ids of each kind, by prefix and by name. Bounded.

-- fragment: own
(CAST(:customer AS bigint) IS NULL OR o.customer = :customer)

-- name: find_newest
-- The newest ids of each kind, whose spelling is compared with a fragment.
SELECT 'run', r.run_id FROM (
    SELECT o.run_id FROM runs o WHERE {{own}} ORDER BY o.run_id DESC LIMIT :n) AS r
UNION ALL
SELECT 'run', h.run_id FROM (
    SELECT o.run_id FROM history o WHERE CAST(:customer AS bigint) IS NULL
    ORDER BY o.run_id DESC LIMIT :n) AS h
UNION ALL
SELECT 'run', k.run_id FROM (
    SELECT o.run_id FROM history o WHERE o.customer = :customer
    ORDER BY o.customer, o.slot DESC, o.run_id DESC LIMIT :n) AS k
UNION ALL
SELECT 'flow', w.flow_id FROM (
    SELECT o.flow_id FROM flows o WHERE {{own}} ORDER BY o.flow_id DESC LIMIT :n) AS w
UNION ALL
SELECT 'cfg', f.config_id FROM (
    SELECT o.config_id FROM configs o WHERE {{own}} ORDER BY o.config_id DESC LIMIT :n) AS f
UNION ALL
SELECT 'dl', d.dead_letter_id FROM (
    SELECT o.dead_letter_id FROM dead_letters o WHERE {{own}}
    ORDER BY o.dead_letter_id DESC LIMIT :n) AS d
UNION ALL
SELECT 'alert', a.alert_id FROM (
    SELECT o.alert_id FROM alerts o WHERE {{own}} ORDER BY o.alert_id DESC LIMIT :n) AS a;

-- name: find_runs
-- Runs by id.
SELECT 'run', o.run_id, l.name || '/' || p.phase || '/' || p.name
    || coalesce(' ' || o.partition, ''), c.customer_id, o.state, o.state_at
FROM runs o JOIN processors p ON p.processor = o.processor JOIN pipelines l ON l.pipeline = p.pipeline
JOIN customers c ON c.customer = o.customer
WHERE o.run_id {{any ids}} AND {{own}}
UNION ALL
SELECT 'run', o.run_id, l.name || '/' || p.phase || '/' || p.name
    || coalesce(' ' || o.partition, ''), c.customer_id, o.final_state, o.finished_at
FROM history o JOIN processors p ON p.processor = o.processor
JOIN pipelines l ON l.pipeline = p.pipeline JOIN customers c ON c.customer = o.customer
WHERE o.run_id {{any ids}} AND {{own}};

-- fragment: found_flow
SELECT 'flow', o.flow_id, l.name || ' ' || o.partition || ' (' || o.mode || ', generation '
    || CAST(o.generation AS text) || ')', c.customer_id, o.state, coalesce(o.ended_at, o.created_at)
FROM flows o JOIN pipelines l ON l.pipeline = o.pipeline JOIN customers c ON c.customer = o.customer

-- name: find_flows
-- Flows by id.
{{found_flow}} WHERE o.flow_id {{any ids}} AND {{own}};

-- name: find_partition
-- The newest flows of a pipeline and partition.
{{found_flow}} WHERE l.name = :pipeline AND o.partition = :partition AND {{own}}
ORDER BY o.flow_id DESC LIMIT :limit;

-- name: find_configs
-- Configs by id.
SELECT 'config', o.config_id, l.name || ' of ' || c.customer_id, c.customer_id,
    CASE WHEN o.deleted_at IS NOT NULL THEN 'deleted' WHEN o.is_active THEN 'active'
        ELSE 'inactive' END, o.updated_at
FROM configs o JOIN pipelines l ON l.pipeline = o.pipeline
JOIN customers c ON c.customer = o.customer
WHERE o.config_id {{any ids}} AND {{own}};

-- name: find_dead_letters
-- Dead letters by id.
SELECT 'dead_letter', o.dead_letter_id, o.error_type || ' of '
    || coalesce(s.name, l.name || '/' || p.phase || '/' || p.name, 'a report'), c.customer_id,
    o.status, o.died_at
FROM dead_letters o LEFT JOIN customers c ON c.customer = o.customer
LEFT JOIN subscriptions s ON s.subscription = o.subscription
LEFT JOIN processors p ON p.processor = o.processor LEFT JOIN pipelines l ON l.pipeline = p.pipeline
WHERE o.dead_letter_id {{any ids}} AND {{own}};

-- name: find_alerts
-- Alerts by id.
SELECT 'alert', o.alert_id, o.rule || ': ' || o.message, c.customer_id, o.state, o.last_at
FROM alerts o LEFT JOIN customers c ON c.customer = o.customer
WHERE o.alert_id {{any ids}} AND {{own}};

-- name: find_message
-- A message by id, with its topic.
SELECT 'message', o.message_id, 'message on ' || t.name, c.customer_id, NULL, o.published_at
FROM messages o JOIN topics t ON t.topic = o.topic LEFT JOIN customers c ON c.customer = o.customer
WHERE o.message_id = :message_id AND {{own}};

-- name: find_correlations
-- Correlation ids: complete ids of flows and messages; for ended runs also prefixes.
SELECT DISTINCT found.correlation_id FROM (
    SELECT w.correlation_id FROM (SELECT o.correlation_id FROM flows o
        WHERE o.correlation_id = :prefix AND {{own}} LIMIT 1) AS w
    UNION ALL
    SELECT m.correlation_id FROM (SELECT o.correlation_id FROM messages o
        WHERE o.correlation_id = :prefix AND o.correlation_id IS NOT NULL AND {{own}} LIMIT 1) AS m
    UNION ALL
    SELECT r.correlation_id FROM (SELECT o.correlation_id FROM runs o
        WHERE o.correlation_id = :prefix AND o.correlation_id IS NOT NULL AND o.flow_id IS NULL
        AND {{own}} LIMIT 1) AS r
    UNION ALL
    SELECT h.correlation_id FROM (SELECT o.correlation_id FROM history o
        WHERE o.correlation_id {{pg:COLLATE "C"}} >= :prefix
        AND o.correlation_id {{pg:COLLATE "C"}} < :prefix_end AND o.correlation_id IS NOT NULL
        AND {{own}} ORDER BY o.correlation_id {{pg:COLLATE "C"}} LIMIT :scan) AS h) AS found
ORDER BY found.correlation_id LIMIT :limit;

-- name: find_entity
-- Whether a report names an entity of a customer, and the time of the newest one.
SELECT o.at FROM entity_ids e {{lite:CROSS}} JOIN entity_changes o ON o.change_id = e.change_id
WHERE e.customer = :customer AND e.kind = :kind AND e.entity = :entity
ORDER BY e.change_id DESC LIMIT 1;

-- name: find_names
-- Customers by the beginning of their id; pipelines, processors, topics, subscriptions and limits
-- by a part of their name.
SELECT 'customer', 0, c.customer_id, c.customer_id FROM (
    SELECT o.customer_id FROM customers o WHERE lower(o.customer_id) LIKE :begins {{lite:ESCAPE '\'}}
        AND {{own}} ORDER BY o.customer_id LIMIT :limit) AS c
UNION ALL
SELECT 'pipeline', 0, l.name, NULL FROM (
    SELECT o.name FROM pipelines o WHERE lower(o.name) LIKE :contains {{lite:ESCAPE '\'}}
    ORDER BY o.name LIMIT :limit) AS l
UNION ALL
SELECT 'processor', 0, p.path, NULL FROM (
    SELECT i.name || '/' || o.phase || '/' || o.name AS path FROM processors o
    JOIN pipelines i ON i.pipeline = o.pipeline
    WHERE lower(o.name) LIKE :contains {{lite:ESCAPE '\'}} ORDER BY 1 LIMIT :limit) AS p
UNION ALL
SELECT 'topic', 0, t.name, t.customer_id FROM (
    SELECT o.name, c.customer_id FROM topics o LEFT JOIN customers c ON c.customer = o.customer
    WHERE lower(o.name) LIKE :contains {{lite:ESCAPE '\'}} AND o.deleted_at IS NULL
        AND (CAST(:customer AS bigint) IS NULL OR o.customer IN (0, :customer))
    ORDER BY o.name LIMIT :limit) AS t
UNION ALL
SELECT 'subscription', 0, s.name, s.customer_id FROM (
    SELECT o.name, c.customer_id FROM subscriptions o
    LEFT JOIN customers c ON c.customer = o.customer
    WHERE lower(o.name) LIKE :contains {{lite:ESCAPE '\'}} AND o.deleted_at IS NULL AND {{own}}
    ORDER BY o.name LIMIT :limit) AS s
UNION ALL
SELECT 'limit', 0, m.name, m.customer_id FROM (
    SELECT o.name, c.customer_id FROM limits o LEFT JOIN customers c ON c.customer = o.customer
    WHERE lower(o.name) LIKE :contains {{lite:ESCAPE '\'}} AND {{own}}
    ORDER BY o.name LIMIT :limit) AS m;
