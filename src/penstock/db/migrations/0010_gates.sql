-- migration: gates
-- breaking: no
-- The one customer of a pipeline whose needs do not tell customers apart, and what probes cost.

-- both
ALTER TABLE pipelines ADD COLUMN sole_customer bigint;
ALTER TABLE dependency_check_log ADD COLUMN probed_us bigint;
ALTER TABLE dependency_check_log ADD COLUMN scanned_bytes bigint;

-- only: postgres
-- A bound caller may be the first to use a pipeline.
CREATE FUNCTION tenant_rules_0010()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'pipelines', 'UPDATE (sole_customer)', 'open', NULL
$$;
SELECT tenant_wall();
