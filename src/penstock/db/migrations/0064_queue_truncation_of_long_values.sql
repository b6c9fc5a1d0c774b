-- migration: queue_truncation_of_long_values
-- breaking: no
-- Autovacuum does not truncate the tables of long values that belong to queue tables either.

-- only: postgres
-- A setting of a table does not extend to the table in which PostgreSQL keeps its long values.
ALTER TABLE runs SET (toast.vacuum_truncate = off);
ALTER TABLE deliveries SET (toast.vacuum_truncate = off);
ALTER TABLE schedule SET (toast.vacuum_truncate = off);
ALTER TABLE outbox SET (toast.vacuum_truncate = off);
ALTER TABLE limit_leases SET (toast.vacuum_truncate = off);
ALTER TABLE limit_tickets SET (toast.vacuum_truncate = off);
