-- migration: outcomes
-- breaking: no
-- The last outcomes of each config, so that lists show them without reading history.

-- both
ALTER TABLE config_health ADD COLUMN outcomes text NOT NULL DEFAULT '';
