-- migration: completion_events
-- breaking: no
-- A flow event names the processor that completed, so that its completion is announced once.

-- both
ALTER TABLE nudges ADD COLUMN processor text;
