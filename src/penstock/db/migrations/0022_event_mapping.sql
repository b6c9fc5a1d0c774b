-- migration: event_mapping
-- breaking: no
-- How a message that starts a config gives its run parameters and a partition.

-- both
ALTER TABLE configs ADD COLUMN event_mapping text;
