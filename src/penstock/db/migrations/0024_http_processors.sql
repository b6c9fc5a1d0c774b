-- migration: http_processors
-- breaking: no
-- Where the runs of an HTTP processor are sent, as JSON; NULL for other processors.

-- both
ALTER TABLE processors ADD COLUMN endpoint text;
CREATE INDEX processors_http ON processors (processor) WHERE endpoint IS NOT NULL;
