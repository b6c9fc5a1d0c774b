-- migration: seals
-- breaking: no
-- Seals of version 2 chain every column of their row.

-- both
ALTER TABLE seals ADD COLUMN version smallint NOT NULL DEFAULT 1;
