-- Dead letters of runs and deliveries: find, group, resolve.

-- fragment: dead_letter_joins
FROM dead_letters d
LEFT JOIN customers c ON c.customer = d.customer
LEFT JOIN processors p ON p.processor = d.processor
LEFT JOIN pipelines l ON l.pipeline = coalesce(p.pipeline, d.pipeline)
LEFT JOIN subscriptions s ON s.subscription = d.subscription
LEFT JOIN topics t ON t.topic = s.topic

-- fragment: dead_letter_filter
(CAST(:status AS text) IS NULL OR d.status = :status)
    AND (CAST(:kind AS text) IS NULL OR d.kind = :kind)
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
    AND (CAST(:subscription AS text) IS NULL OR s.name = :subscription)
    AND (CAST(:subscription_number AS bigint) IS NULL OR d.subscription = :subscription_number)
    AND (CAST(:topic AS text) IS NULL OR t.name = :topic)
    AND (CAST(:pipeline AS text) IS NULL OR l.name = :pipeline)
    AND (CAST(:processor AS text) IS NULL OR p.name = :processor)
    AND (CAST(:partition AS text) IS NULL OR d.partition = :partition)
    AND (CAST(:correlation_id AS text) IS NULL OR d.correlation_id = :correlation_id)
    AND (CAST(:error_type AS text) IS NULL OR d.error_type = :error_type)
    AND d.died_at >= :since AND d.died_at < :until

-- fragment: open_of_error
-- For an index; the filter alone, whose conditions may be absent, uses none.
d.status = 'open' AND d.error_type = :error_type

-- fragment: open_of_customer
d.status = 'open' AND d.customer = :customer

-- fragment: dead_letter_rows
SELECT d.dead_letter_id, d.kind, d.subject, c.customer_id, l.name, p.phase, p.name, d.config_id,
    d.partition, d.correlation_id, d.error_type, d.error_kind, d.error_details, d.attempts,
    d.died_at, d.status, d.replays, d.resolved_at, d.resolved_by, d.resolution,
    d.subscription, s.name, t.name, d.message_id, d.round, d.customer
{{dead_letter_joins}}

-- name: dead_letter_find
-- Dead letters, newest first.
-- scope: system (operators; a tenant's key adds :customer)
{{dead_letter_rows}}
WHERE {{dead_letter_filter}} AND d.dead_letter_id < :before
ORDER BY d.dead_letter_id DESC LIMIT :limit;

-- name: dead_letter_find_error
-- Open dead letters of an error type, by their index, newest first.
-- scope: system (operators; a tenant's key adds :customer)
{{dead_letter_rows}}
WHERE {{open_of_error}} AND {{dead_letter_filter}} AND d.dead_letter_id < :before
ORDER BY d.dead_letter_id DESC LIMIT :limit;

-- name: dead_letter_find_customer
-- Open dead letters of a customer, by their index, newest first.
{{dead_letter_rows}}
WHERE {{open_of_customer}} AND {{dead_letter_filter}} AND d.dead_letter_id < :before
ORDER BY d.dead_letter_id DESC LIMIT :limit;

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

-- fragment: dead_letter_grouped
SELECT g.kind, g.pipeline, g.phase, g.processor, g.subscription, g.error_type, count(*),
    min(g.died_at), max(g.died_at), max(g.dead_letter_id), g.error_kind, g.details, g.hour
FROM (SELECT d.kind, l.name AS pipeline, p.phase, p.name AS processor, s.name AS subscription,
        d.error_type, d.died_at, d.dead_letter_id, d.error_kind,
        substr(d.error_details, 1, CAST(:chars AS integer)) AS details,
        -- Older ones share one hour, so that few groups are read.
        CASE WHEN d.died_at >= :hours_since THEN d.died_at / 3600000000 ELSE 0 END AS hour
    {{dead_letter_joins}}

-- fragment: dead_letter_newest
    ORDER BY d.dead_letter_id DESC LIMIT :most) AS g
GROUP BY g.kind, g.pipeline, g.phase, g.processor, g.subscription, g.error_type, g.error_kind,
    g.details, g.hour

-- name: dead_letter_groups
-- Group the newest dead letters by origin, error, beginning of its text and hour.
-- scope: system (operators; a tenant's key adds :customer)
{{dead_letter_grouped}} WHERE {{dead_letter_filter}} {{dead_letter_newest}};

-- name: dead_letter_groups_error
-- The same of open dead letters of an error type, by their index.
-- scope: system (operators; a tenant's key adds :customer)
{{dead_letter_grouped}} WHERE {{open_of_error}} AND {{dead_letter_filter}} {{dead_letter_newest}};

-- name: dead_letter_groups_customer
-- The same of open dead letters of a customer, by their index.
{{dead_letter_grouped}}
    WHERE {{open_of_customer}} AND {{dead_letter_filter}} {{dead_letter_newest}};

-- name: dead_letter_count
-- Count matching dead letters, up to a maximum.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*) FROM (SELECT d.dead_letter_id
    {{dead_letter_joins}}
    WHERE {{dead_letter_filter}} LIMIT :most) AS found;

-- name: dead_letter_count_error
-- Count open dead letters of an error type, by their index, up to a maximum.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*) FROM (SELECT d.dead_letter_id
    {{dead_letter_joins}}
    WHERE {{open_of_error}} AND {{dead_letter_filter}} LIMIT :most) AS found;

-- name: dead_letter_count_customer
-- Count open dead letters of a customer, by their index, up to a maximum.
SELECT count(*) FROM (SELECT d.dead_letter_id
    {{dead_letter_joins}}
    WHERE {{open_of_customer}} AND {{dead_letter_filter}} LIMIT :most) AS found;

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
