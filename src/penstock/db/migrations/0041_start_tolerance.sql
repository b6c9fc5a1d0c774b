-- migration: start_tolerance
-- breaking: no
-- Customers state how late their scheduled runs may start, so that starts can be spread. A SQLite
-- file that was copied from PostgreSQL finds sealed entries in the order of their transactions.

-- both
-- NULL: nothing was agreed.
ALTER TABLE customer_settings ADD COLUMN start_tolerance_us bigint CHECK (start_tolerance_us BETWEEN 0 AND 86400000000);

-- only: sqlite
CREATE INDEX journal_copied ON journal (cluster, xid, seq) WHERE cluster < 0;
