-- The state of the installation: ticks of services, the database, audit sinks.

-- name: ticks_put
-- Record that services have made a step, and in which interval they make one.
-- scope: system (counters have no customer)
-- batch: service text, interval_us bigint
INSERT INTO counters (name, value)
SELECT 'tick:' || batch.service, {{now}} FROM {{batch}} WHERE TRUE
ON CONFLICT (name) DO UPDATE SET value = greatest(counters.value, excluded.value);
INSERT INTO counters (name, value)
SELECT 'every:' || batch.service, batch.interval_us FROM {{batch}} WHERE TRUE
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE counters.value <> excluded.value;

-- name: ticks_read
-- Services by name, with their last tick and interval.
-- scope: system (counters have no customer)
SELECT substr(t.name, 6), t.value,
    coalesce((SELECT e.value FROM counters e WHERE e.name = 'every:' || substr(t.name, 6)), 0)
FROM counters t WHERE t.name LIKE 'tick:%' ORDER BY t.name;

-- name: store_state [postgres]
-- Version, last migration and size of the database.
-- scope: system (operators)
SELECT current_setting('server_version'), m.number, m.name,
    pg_database_size(current_database())
FROM schema_migrations m ORDER BY m.number DESC LIMIT 1;

-- name: store_state [sqlite]
-- differs because each engine has its own functions for version and size.
-- scope: system (operators)
SELECT sqlite_version(), m.number, m.name, c.page_count * s.page_size
FROM schema_migrations m, pragma_page_count() c, pragma_page_size() s
ORDER BY m.number DESC LIMIT 1;

-- name: sinks_read
-- Audit sinks that have been shipped to.
-- scope: system (operators)
SELECT DISTINCT sink FROM shipments ORDER BY sink;
