-- migration: failed_starts
-- breaking: no
-- The latest flow that counts as a failed start of its config, so that each flow counts once.

-- both
ALTER TABLE config_health ADD COLUMN failed_flow bigint NOT NULL DEFAULT 0;
