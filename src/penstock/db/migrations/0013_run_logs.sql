-- migration: run_logs
-- breaking: no
-- The log entries of runs, kept with the run: one row per batch of entries that a holder wrote.

-- both
CREATE TABLE run_logs (
    run_id bigint NOT NULL,
    token bigint NOT NULL,
    part integer NOT NULL,
    customer bigint NOT NULL,
    at bigint NOT NULL,
    entries text NOT NULL,
    PRIMARY KEY (run_id, token, part)
);
CREATE INDEX run_logs_by_time ON run_logs (at);

-- only: postgres
CREATE FUNCTION tenant_rules_0013()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, 'customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('run_logs', 'SELECT, INSERT')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
