-- The state of the installation: the database, audit sinks.

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
