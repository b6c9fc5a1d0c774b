-- Customers' pipeline configurations, their health, and the hash-chained audit of every change.

-- fragment: config_columns
-- In the order of `rows.ConfigRow`.
f.config_id, f.customer, c.customer_id, f.pipeline, l.name, f.provider, f.domain,
f.schedule_type, d.cron, d.interval_us, f.timezone, f.event_topic, f.event_filter, f.parameters,
f.retry, f.priority, f.max_execution_us, f.sla_us, f.catch_up, f.catch_up_window_us, f.overlap,
f.jitter_us, f.offset_us, f.is_active, f.inactive_reason, f.version, f.created_at, f.created_by,
f.updated_at, f.deleted_at, s.next_run_time, h.last_run_time, h.last_run_status,
coalesce(h.consecutive_failures, 0),
(SELECT count(*) FROM pauses q WHERE q.scope = 'config' AND q.subject = f.config_id),
f.event_mapping, f.expires_us, coalesce(h.outcomes, '')

-- fragment: config_joins
FROM configs f
JOIN customers c ON c.customer = f.customer
JOIN pipelines l ON l.pipeline = f.pipeline
LEFT JOIN cadences d ON d.cadence = f.cadence
LEFT JOIN schedule s ON s.config_id = f.config_id
LEFT JOIN config_health h ON h.config_id = f.config_id

-- name: config_insert_many [postgres]
-- Create configs. Returns their ids in batch order.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, provider text, domain text, schedule_type text,
--   cadence bigint, timezone text, event_topic text, event_filter text, parameters text,
--   retry text, priority smallint, max_execution_us bigint, sla_us bigint, catch_up text,
--   catch_up_window_us bigint, overlap text, jitter_us bigint, is_active boolean, created_by text,
--   event_mapping text, expires_us bigint
INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, cadence, timezone,
    event_topic, event_filter, parameters, retry, priority, max_execution_us, sla_us, catch_up,
    catch_up_window_us, overlap, jitter_us, is_active, created_by, event_mapping, expires_us,
    created_at, updated_at)
SELECT customer, pipeline, provider, domain, schedule_type, cadence, timezone, event_topic,
    event_filter, parameters, retry, priority, max_execution_us, sla_us, catch_up,
    catch_up_window_us, overlap, jitter_us, is_active, created_by, event_mapping, expires_us,
    {{now}}, {{now}}
FROM {{batch}} ORDER BY ord RETURNING config_id;

-- name: config_insert_many [sqlite]
-- differs because SQLite does not guarantee the order of RETURNING: ids are read back by range.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, provider text, domain text, schedule_type text,
--   cadence bigint, timezone text, event_topic text, event_filter text, parameters text,
--   retry text, priority smallint, max_execution_us bigint, sla_us bigint, catch_up text,
--   catch_up_window_us bigint, overlap text, jitter_us bigint, is_active boolean, created_by text,
--   event_mapping text, expires_us bigint
INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, cadence, timezone,
    event_topic, event_filter, parameters, retry, priority, max_execution_us, sla_us, catch_up,
    catch_up_window_us, overlap, jitter_us, is_active, created_by, event_mapping, expires_us,
    created_at, updated_at)
SELECT customer, pipeline, provider, domain, schedule_type, cadence, timezone, event_topic,
    event_filter, parameters, retry, priority, max_execution_us, sla_us, catch_up,
    catch_up_window_us, overlap, jitter_us, is_active, created_by, event_mapping, expires_us,
    {{now}}, {{now}}
FROM {{batch}} ORDER BY ord;
SELECT config_id FROM configs WHERE config_id > (
    SELECT max(config_id) - (SELECT count(*) FROM {{batch}}) FROM configs) ORDER BY config_id;

-- name: config_set_offset_many
-- Set a config's stable offset within its jitter, which depends on its id.
-- scope: system (by config id)
-- batch: config_id bigint, offset_us bigint
UPDATE configs SET offset_us = batch.offset_us FROM {{batch}}
WHERE configs.config_id = batch.config_id;

-- name: config_update
-- Replace a config's settings if its version is the one the caller read.
-- scope: system (by config id, checked by the caller)
UPDATE configs SET provider = :provider, domain = :domain, schedule_type = :schedule_type,
    cadence = :cadence, timezone = :timezone, event_topic = :event_topic,
    event_filter = :event_filter, parameters = :parameters, retry = :retry, priority = :priority,
    max_execution_us = :max_execution_us, sla_us = :sla_us, catch_up = :catch_up,
    catch_up_window_us = :catch_up_window_us, overlap = :overlap, jitter_us = :jitter_us,
    event_mapping = :event_mapping, expires_us = :expires_us, offset_us = :offset_us, is_active = :is_active, inactive_reason = :inactive_reason,
    version = version + 1, updated_at = {{now}}
WHERE config_id = :config_id AND version = :version AND deleted_at IS NULL
RETURNING version;

-- name: config_deactivate
-- Disable a config, with a reason.
-- scope: system (by config id)
UPDATE configs SET is_active = FALSE, inactive_reason = :reason, version = version + 1,
    updated_at = {{now}}
WHERE config_id = :config_id AND is_active;

-- name: config_delete
-- Mark a config as deleted.
-- scope: system (by config id, checked by the caller)
UPDATE configs SET deleted_at = {{now}}, is_active = FALSE, version = version + 1,
    updated_at = {{now}}
WHERE config_id = :config_id AND deleted_at IS NULL
RETURNING version;

-- name: config_get
-- One config, optionally only if it belongs to a customer.
SELECT {{config_columns}} {{config_joins}}
WHERE f.config_id = :config_id AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer);

-- name: config_cadences_of_pipeline
-- The schedules of a pipeline's active configs: the number of configs with each, and the first one.
-- scope: system (registration serves all customers)
SELECT d.cron, d.interval_us, count(*), min(f.config_id)
FROM configs f JOIN cadences d ON d.cadence = f.cadence
WHERE f.pipeline = :pipeline AND f.is_active
GROUP BY d.cron, d.interval_us ORDER BY 4;

-- name: config_lock
-- Lock a config's row before deciding on it.
-- scope: system (by config id)
SELECT version FROM configs WHERE config_id = :config_id {{pg:FOR NO KEY UPDATE}};

-- fragment: config_filters
f.deleted_at IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
    AND (CAST(:is_active AS boolean) IS NULL OR f.is_active = :is_active)
    AND (CAST(:first AS text) IS NULL OR (c.customer_id >= :first AND c.customer_id < :last))

-- fragment: is_unpaused_config
NOT EXISTS (SELECT 1 FROM pauses q WHERE q.scope = 'config' AND q.subject = f.config_id)

-- name: config_list
-- Configs in id order, with filters; keyset paging by config id.
SELECT {{config_columns}} {{config_joins}}
WHERE f.config_id > :after AND {{config_filters}}
ORDER BY f.config_id LIMIT :limit;

-- name: config_get_like
-- Active configs of some customers and pipelines with some of these schedules and parameters, in
-- id order. `crons` has an empty text for configs without a cron expression.
-- scope: system (the caller checks the customers)
SELECT {{config_columns}} {{config_joins}}
WHERE c.customer_id {{any customers}} AND l.name {{any pipelines}}
    AND f.parameters {{any parameters}} AND coalesce(d.cron, '') {{any crons}}
    AND f.is_active AND f.deleted_at IS NULL
ORDER BY f.config_id;

-- name: config_list_named
-- Configs of customers whose name begins with a text, by customer, then in id order.
-- scope: system (a tenant's key adds :customer)
SELECT {{config_columns}} {{config_joins}}
WHERE c.customer_id >= :after_customer AND c.customer_id >= :first AND c.customer_id < :last
    AND (c.customer_id > :after_customer OR f.config_id > :after) AND f.deleted_at IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
    AND (CAST(:is_active AS boolean) IS NULL OR f.is_active = :is_active)
ORDER BY c.customer_id, f.config_id LIMIT :limit;

-- name: config_list_next
-- Configs by their next start, with filters; keyset paging by time and config id.
SELECT {{config_columns}} {{config_joins}}
WHERE (s.next_run_time, s.config_id) > (:after_time, :after)
    AND s.next_run_time < :due_before AND {{config_filters}}
ORDER BY s.next_run_time, s.config_id LIMIT :limit;

-- name: config_list_failing
-- Configs whose last runs failed, in id order; keyset paging by config id.
SELECT {{config_columns}} {{config_joins}}
WHERE h.config_id > :after AND h.consecutive_failures > 0 AND {{config_filters}}
ORDER BY h.config_id LIMIT :limit;

-- name: config_list_in_trouble
-- Active configs with a number of failures in a row, in id order; keyset paging by config id.
SELECT {{config_columns}} {{config_joins}}
WHERE h.config_id > :after AND h.consecutive_failures > 0
    AND h.consecutive_failures BETWEEN :failures_from AND :failures_to AND f.is_active
    AND {{is_unpaused_config}} AND {{config_filters}}
ORDER BY h.config_id LIMIT :limit;

-- name: config_list_off
-- Configs that are inactive, in id order; keyset paging by config id.
SELECT {{config_columns}} {{config_joins}}
WHERE f.config_id > :after AND NOT f.is_active AND {{is_unpaused_config}} AND {{config_filters}}
ORDER BY f.config_id LIMIT :limit;

-- name: config_list_paused
-- Configs with a pause, in id order; keyset paging by config id.
SELECT {{config_columns}} {{config_joins}}
WHERE f.config_id IN (SELECT q.subject FROM pauses q WHERE q.scope = 'config' AND q.subject > :after)
    AND {{config_filters}}
ORDER BY f.config_id LIMIT :limit;

-- name: config_list_well
-- Active configs without failures and pauses, in id order; keyset paging by config id.
SELECT {{config_columns}} {{config_joins}}
WHERE f.config_id > :after AND f.is_active AND coalesce(h.consecutive_failures, 0) = 0
    AND {{is_unpaused_config}} AND {{config_filters}}
ORDER BY f.config_id LIMIT :limit;

-- name: schedule_cadences
-- The cadences that configs use.
-- scope: system (cadences have no customer)
SELECT DISTINCT s.cadence, d.cron, d.timezone, d.interval_us
FROM schedule s JOIN cadences d ON d.cadence = s.cadence;

-- name: config_list_by_cadence
-- Configs that use one of these cadences, in id order; keyset paging by config id.
SELECT {{config_columns}} {{config_joins}}
WHERE f.config_id > :after AND f.deleted_at IS NULL AND s.cadence {{any cadences}}
    AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
ORDER BY f.config_id LIMIT :limit;

-- name: config_health_reset
-- Reset the failure count when a config is enabled again.
-- scope: system (by config id)
UPDATE config_health SET consecutive_failures = 0 WHERE config_id = :config_id;

-- name: audit_chains
-- Audit entries of all customers after a position, chain by chain, for verification.
-- scope: system (verification of every chain)
SELECT a.n, a.at, a.action, a.config_id, a.actor, a.reason, a.old_values, a.new_values, a.previous,
    a.hash, a.customer, c.customer_id
FROM audit a JOIN customers c ON c.customer = a.customer
WHERE (a.customer, a.n) > (:customer, :after)
    AND (CAST(:only AS bigint) IS NULL OR a.customer = :only)
ORDER BY a.customer, a.n LIMIT :limit;

-- name: audit_headless
-- A customer whose newest audit entry is not the one that its head names.
-- scope: system (verification of every chain)
SELECT c.customer_id FROM customers c
WHERE (CAST(:only AS bigint) IS NULL OR c.customer = :only)
    AND ((c.audit_n > 0 AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.customer = c.customer
            AND a.n = c.audit_n AND a.hash = c.audit_head))
        OR EXISTS (SELECT 1 FROM audit a WHERE a.customer = c.customer AND a.n > c.audit_n))
ORDER BY c.customer LIMIT 1;

-- name: audit_links
-- Given links of the audit chains of customers; n is NULL where a link is missing.
-- scope: system (verification of every chain)
SELECT c.customer, c.customer_id, a.n, a.hash
FROM customers c LEFT JOIN audit a ON a.customer = c.customer AND a.n {{any numbers}}
WHERE c.customer {{any ids}} ORDER BY c.customer;

-- name: audit_append_many
-- Insert audit entries that the caller has chained (also in bulk).
-- scope: system (the batch names its customers)
-- batch: customer bigint, n bigint, at bigint, action text, config_id bigint, actor text,
--   reason text, old_values text, new_values text, previous text, hash text
INSERT INTO audit (customer, n, at, action, config_id, actor, reason, old_values, new_values,
    previous, hash)
SELECT customer, n, at, action, config_id, actor, reason, old_values, new_values, previous, hash
FROM {{batch}};
UPDATE customers SET audit_n = batch.n, audit_head = batch.hash FROM {{batch}}
WHERE customers.customer = batch.customer AND batch.n = (
    SELECT max(a.n) FROM audit a WHERE a.customer = batch.customer);

-- name: customer_lock_many
-- Lock customers in order and return the heads of their audit chains. Not FOR UPDATE: new configs
-- already lock their customer through the foreign key, and upgrading that lock would deadlock.
-- scope: system (the batch names its customers)
-- batch: customer bigint
SELECT c.customer, c.audit_n, c.audit_head FROM customers c
WHERE c.customer IN (SELECT batch.customer FROM {{batch}})
ORDER BY c.customer {{pg:FOR NO KEY UPDATE}};

-- name: audit_list
-- A customer's audit entries, oldest first.
SELECT n, at, action, config_id, actor, reason, old_values, new_values, previous, hash
FROM audit WHERE customer = :customer AND n > :after
    AND (CAST(:config_id AS bigint) IS NULL OR config_id = :config_id)
ORDER BY n LIMIT :limit;
