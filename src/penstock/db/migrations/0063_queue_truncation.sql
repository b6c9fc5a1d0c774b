-- migration: queue_truncation
-- breaking: no
-- Autovacuum does not truncate queue tables: their pages are soon used again.

-- only: postgres
-- It waited up to five seconds for an exclusive lock on the table. Meanwhile the vacuum service
-- skipped the table, dead rows accumulated, and claims took twice the CPU time.
ALTER TABLE runs SET (vacuum_truncate = off);
ALTER TABLE deliveries SET (vacuum_truncate = off);
ALTER TABLE schedule SET (vacuum_truncate = off);
ALTER TABLE outbox SET (vacuum_truncate = off);
ALTER TABLE run_limits SET (vacuum_truncate = off);
ALTER TABLE limit_leases SET (vacuum_truncate = off);
ALTER TABLE limit_tickets SET (vacuum_truncate = off);
ALTER TABLE fair_ranks SET (vacuum_truncate = off);
