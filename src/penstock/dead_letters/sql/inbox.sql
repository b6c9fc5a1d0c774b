-- Dead letters of runs and deliveries: find, group, resolve.

-- fragment: dead_letter_names
LEFT JOIN customers c ON c.customer = d.customer
LEFT JOIN processors p ON p.processor = d.processor
LEFT JOIN pipelines l ON l.pipeline = coalesce(p.pipeline, d.pipeline)
LEFT JOIN subscriptions s ON s.subscription = d.subscription
LEFT JOIN topics t ON t.topic = s.topic

-- fragment: dead_letter_filter
(CAST(:status AS text) IS NULL OR d.status = :status)
    AND (CAST(:kind AS text) IS NULL OR d.kind = :kind)
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
    AND (CAST(:subscription AS text) IS NULL OR d.subscription {{any subscriptions}})
    AND (CAST(:subscription_number AS bigint) IS NULL OR d.subscription = :subscription_number)
    AND (CAST(:topic AS text) IS NULL OR d.subscription {{any subscriptions}})
    AND (CAST(:processor AS text) IS NULL OR d.processor {{any processors}})
    AND (CAST(:pipeline AS text) IS NULL OR d.processor {{any processors}}
        OR (d.processor IS NULL AND d.pipeline {{any pipelines}}))
    AND (CAST(:partition AS text) IS NULL OR d.partition = :partition)
    AND (CAST(:correlation_id AS text) IS NULL OR d.correlation_id = :correlation_id)
    AND (CAST(:error_type AS text) IS NULL OR d.error_type = :error_type)
    -- A key of 0 stands for none.
    AND (CAST(:group_kind AS text) IS NULL OR (d.kind = :group_kind
        AND d.error_type = :group_error AND coalesce(d.processor, 0) {{any group_processors}}
        AND coalesce(d.subscription, 0) {{any group_subscriptions}}
        AND (d.processor IS NOT NULL OR coalesce(d.pipeline, 0) {{any group_pipelines}})))
    AND d.died_at >= :since AND d.died_at < :until

-- fragment: dead_letter_keys
dead_letter_id, kind, status, customer, processor, pipeline, subscription, partition,
    correlation_id, error_type, died_at, error_kind, error_details

-- fragment: dead_letter_window
-- The next dead letters by the index that fits best, before other filters; all but one part are empty.
SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'open' AND d.status = 'open'
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_open
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'customer' AND d.status = 'open' AND d.customer = :customer
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_customer
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'error' AND d.status = 'open' AND d.error_type = :error_key
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_error
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'processor' AND d.status = 'open' AND d.processor = :processor_key
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_processor
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'subscription' AND d.subscription = :subscription_key
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_subscription
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'processor_error' AND d.status = 'open'
        AND d.processor = :processor_key AND d.error_type = :error_key
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_run_error
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'subscription_error' AND d.status = 'open'
        AND d.subscription = :subscription_key AND d.error_type = :error_key
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_delivery_error
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'cause' AND d.correlation_id = :correlation_id
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_cause
UNION ALL SELECT * FROM (SELECT {{d dead_letter_keys}} FROM dead_letters d
    WHERE CAST(:path AS text) = 'all' AND TRUE
        AND d.dead_letter_id < :before ORDER BY d.dead_letter_id DESC LIMIT :visited) AS w_all

-- fragment: dead_letter_columns
d.dead_letter_id, d.kind, d.subject, c.customer_id, l.name, p.phase, p.name, d.config_id,
    d.partition, d.correlation_id, d.error_type, d.error_kind, d.error_details, d.attempts,
    d.died_at, d.status, d.replays, d.resolved_at, d.resolved_by, d.resolution,
    d.subscription, s.name, t.name, d.message_id, d.round, d.customer

-- fragment: dead_letter_rows
SELECT {{dead_letter_columns}} FROM dead_letters d {{dead_letter_names}}

-- name: dead_letter_find
-- Dead letters of a window, newest first, each with the size and the end of the window. If none
-- matches, one row with only these two.
-- scope: system (operators; a tenant's key adds :customer)
WITH w AS MATERIALIZED ({{dead_letter_window}}), m AS (
    SELECT d.dead_letter_id FROM w d WHERE {{dead_letter_filter}}
    ORDER BY d.dead_letter_id DESC LIMIT :limit
)
SELECT n.visited, n.last_id, {{dead_letter_columns}}
FROM (SELECT count(*) AS visited, min(dead_letter_id) AS last_id FROM w) AS n
LEFT JOIN (m JOIN dead_letters d ON d.dead_letter_id = m.dead_letter_id) ON TRUE
{{dead_letter_names}}
ORDER BY d.dead_letter_id DESC;

-- name: dead_letter_subscriptions
-- Subscriptions by name or topic.
-- scope: system (the caller filters by its own customer)
SELECT s.subscription FROM subscriptions s JOIN topics t ON t.topic = s.topic
WHERE (CAST(:subscription AS text) IS NULL OR s.name = :subscription)
    AND (CAST(:topic AS text) IS NULL OR t.name = :topic);

-- name: dead_letter_processors
-- Processors by pipeline or name, with their pipelines; includes pipelines without such processors.
-- scope: system (declarations have no customer)
SELECT l.pipeline, p.processor, p.phase FROM pipelines l
LEFT JOIN processors p ON p.pipeline = l.pipeline
    AND (CAST(:processor AS text) IS NULL OR p.name = :processor)
WHERE (CAST(:pipeline AS text) IS NULL OR l.name = :pipeline);

-- name: dead_letter_get
-- One dead letter.
-- scope: system (operators; a tenant's key adds :customer)
{{dead_letter_rows}}
WHERE d.dead_letter_id = :dead_letter_id
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer);

-- name: dead_letter_of_run
-- The dead letter of a run.
-- scope: system (operators; a tenant's key adds :customer)
{{dead_letter_rows}}
WHERE d.kind = 'run' AND d.subject = :run_id
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer);

-- name: dead_letter_groups
-- Group the newest dead letters by origin, error type, beginning of the error text and hour, with
-- the ids of the open ones if :with_ids is 1.
-- scope: system (operators; a tenant's key adds :customer)
SELECT d.kind, l.name, p.phase, p.name, s.name, d.error_type, d.dead_letters, d.first_at, d.last_at,
    d.latest, d.error_kind, d.details, d.hour, d.ids
FROM (SELECT g.kind, g.pipeline, g.processor, g.subscription, g.error_type, count(*) AS dead_letters,
        min(g.died_at) AS first_at, max(g.died_at) AS last_at, max(g.dead_letter_id) AS latest,
        g.error_kind, g.details, g.hour,
        {{pg:string_agg(CAST(g.open_id AS text), ',')}}{{lite:group_concat(g.open_id)}} AS ids
    FROM (SELECT d.kind, d.pipeline, d.processor, d.subscription, d.error_type, d.died_at,
            d.dead_letter_id, d.error_kind,
            CASE WHEN CAST(:with_ids AS integer) = 1 AND d.status = 'open' THEN d.dead_letter_id END
                AS open_id,
            -- A text of one kilobyte is cheaper to group than to cut.
            CASE WHEN {{pg:octet_length}}{{lite:length}}(d.error_details) <= 1000 THEN d.error_details
                ELSE substr(d.error_details, 1, CAST(:chars AS integer)) END AS details,
            -- Older ones share one hour, so that few groups are read.
            CASE WHEN d.died_at >= :hours_since THEN d.died_at / 3600000000 ELSE 0 END AS hour
        FROM ({{dead_letter_window}}) AS d WHERE {{dead_letter_filter}}
        ORDER BY d.dead_letter_id DESC LIMIT :most) AS g
    GROUP BY g.kind, g.pipeline, g.processor, g.subscription, g.error_type, g.error_kind, g.details,
        g.hour) AS d
LEFT JOIN processors p ON p.processor = d.processor
LEFT JOIN pipelines l ON l.pipeline = coalesce(p.pipeline, d.pipeline)
LEFT JOIN subscriptions s ON s.subscription = d.subscription;

-- name: dead_letter_reports
-- The contents of reports, which have neither a processor nor a subscription.
-- scope: system (by id, which the caller found with its customer filter)
SELECT d.dead_letter_id, d.error_details FROM dead_letters d
WHERE d.dead_letter_id {{any ids}} AND d.processor IS NULL AND d.subscription IS NULL;

-- name: dead_letter_refused_runs
-- Which dead letters of runs a replay would refuse now, and why. A run ended when its dead letter
-- was written, so that time selects its partition; a join would scan all of history first.
-- scope: system (by id, which the caller found with its customer filter)
WITH RECURSIVE up (dead_letter_id, run_id, n) AS (
    SELECT d.dead_letter_id, (SELECT h.parent_run_id FROM history h
        WHERE h.run_id = d.subject AND h.finished_at = d.died_at), 1
    FROM dead_letters d WHERE d.dead_letter_id {{any ids}} AND d.kind = 'run'
    UNION ALL
    SELECT u.dead_letter_id, (SELECT h.parent_run_id FROM history h WHERE h.run_id = u.run_id),
        u.n + 1
    FROM up u WHERE u.run_id IS NOT NULL AND u.n < 100
)
SELECT d.dead_letter_id, 'undeclared' FROM dead_letters d
JOIN processors p ON p.processor = d.processor
WHERE d.dead_letter_id {{any ids}} AND d.kind = 'run' AND NOT p.is_current
UNION ALL
SELECT u.dead_letter_id, 'replayed' FROM up u
JOIN dead_letters d ON d.kind = 'run' AND d.subject = u.run_id
WHERE u.run_id IS NOT NULL AND d.status = 'replayed'
GROUP BY u.dead_letter_id HAVING count(*) >= :replays_max;

-- name: dead_letter_refused_deliveries
-- Which dead letters of deliveries a replay would refuse now, and why. The copy of the message and
-- the end of the delivery have the time of the dead letter, which selects their partitions.
-- scope: system (by id, which the caller found with its customer filter)
SELECT f.dead_letter_id, f.reason FROM (
    SELECT d.dead_letter_id, CASE
        WHEN s.subscription IS NULL OR s.deleted_at IS NOT NULL THEN 'deleted'
        WHEN NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = d.subject
                AND m.published_at BETWEEN d.died_at - :around AND d.died_at + :around)
            AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = d.message_id)
            THEN 'gone'
        WHEN EXISTS (SELECT 1 FROM deliveries o WHERE o.subscription = d.subscription
            AND o.message_id = d.message_id) THEN 'delivering'
        WHEN s.detached_at IS NOT NULL THEN 'detached'
        WHEN (SELECT max(e.replays) FROM settled e WHERE e.message_id = d.message_id
                AND e.subscription = d.subscription
                AND e.at BETWEEN d.died_at - :around AND d.died_at + :around)
            >= s.replays_max THEN 'replayed_often'
        END AS reason
    FROM dead_letters d LEFT JOIN subscriptions s ON s.subscription = d.subscription
    WHERE d.dead_letter_id {{any ids}} AND d.kind = 'delivery' AND d.subscription IS NOT NULL) AS f
WHERE f.reason IS NOT NULL;

-- name: dead_letter_count
-- Count matching dead letters of a window, up to a maximum.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*) FROM (SELECT d.dead_letter_id FROM ({{dead_letter_window}}) AS d
    WHERE {{dead_letter_filter}} LIMIT :most) AS found;

-- name: dead_letter_count_index
-- Count dead letters before an id by an index alone, up to a maximum.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*) FROM (SELECT u.dead_letter_id FROM (
    SELECT d.dead_letter_id FROM dead_letters d WHERE CAST(:path AS text) = 'open'
        AND d.dead_letter_id < :before AND d.status = 'open'
    UNION ALL SELECT d.dead_letter_id FROM dead_letters d WHERE CAST(:path AS text) = 'customer'
        AND d.dead_letter_id < :before AND d.status = 'open' AND d.customer = :customer
    UNION ALL SELECT d.dead_letter_id FROM dead_letters d WHERE CAST(:path AS text) = 'error'
        AND d.dead_letter_id < :before AND d.status = 'open' AND d.error_type = :error_key
    UNION ALL SELECT d.dead_letter_id FROM dead_letters d WHERE CAST(:path AS text) = 'processor'
        AND d.dead_letter_id < :before AND d.status = 'open' AND d.processor = :processor_key
    UNION ALL SELECT d.dead_letter_id FROM dead_letters d WHERE CAST(:path AS text) = 'subscription'
        AND d.dead_letter_id < :before AND d.subscription = :subscription_key
    UNION ALL SELECT d.dead_letter_id FROM dead_letters d
        WHERE CAST(:path AS text) = 'processor_error' AND d.dead_letter_id < :before
            AND d.status = 'open' AND d.processor = :processor_key AND d.error_type = :error_key
    UNION ALL SELECT d.dead_letter_id FROM dead_letters d
        WHERE CAST(:path AS text) = 'subscription_error' AND d.dead_letter_id < :before
            AND d.status = 'open' AND d.subscription = :subscription_key
            AND d.error_type = :error_key
    UNION ALL SELECT d.dead_letter_id FROM dead_letters d WHERE CAST(:path AS text) = 'cause'
        AND d.dead_letter_id < :before AND d.correlation_id = :correlation_id
    ) AS u LIMIT :most) AS found;

-- name: dead_letter_attempts
-- The newest failed attempts of a delivery.
-- scope: system (of a dead letter that the caller found with its customer filter)
SELECT f.attempt, f.at, f.error_type, f.error, f.service, f.revision FROM delivery_failures f
WHERE f.message_id = :message_id AND f.subscription = :subscription_key AND f.round = :generation
ORDER BY f.failure_id DESC LIMIT :most;

-- name: dead_letter_resolve_many
-- Resolve dead letters as replayed or discarded. Those no longer open are not returned.
-- scope: system (by id, which the caller found with its customer filter)
-- batch: dead_letter_id bigint, resolution text
UPDATE dead_letters SET status = :status, resolved_at = {{now}}, resolved_by = :actor,
    resolution = batch.resolution,
    replays = dead_letters.replays + CASE WHEN :status = 'replayed' THEN 1 ELSE 0 END
FROM {{batch}}
WHERE dead_letters.dead_letter_id = batch.dead_letter_id AND dead_letters.status = 'open'
RETURNING dead_letters.dead_letter_id;

-- name: dead_letter_lock
-- Lock an open dead letter until the transaction ends; no row if it is not open.
-- scope: system (by id, which the caller found with its customer filter)
SELECT dead_letter_id FROM dead_letters
WHERE dead_letter_id = :dead_letter_id AND status = 'open' {{pg:FOR NO KEY UPDATE}};

-- name: run_replays
-- Count the replays of an ended run's work: replayed dead letters among its ancestors.
-- scope: system (the caller found the run with its customer filter)
WITH RECURSIVE up (run_id, n) AS (
    SELECT CAST(:run_id AS bigint), 0
    UNION ALL
    SELECT h.parent_run_id, u.n + 1 FROM up u JOIN history h ON h.run_id = u.run_id
    WHERE h.parent_run_id IS NOT NULL AND u.n < 1000
)
SELECT count(*) FROM up u JOIN dead_letters d ON d.kind = 'run' AND d.subject = u.run_id
WHERE d.status = 'replayed';
