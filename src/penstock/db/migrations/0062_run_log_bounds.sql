-- migration: run_log_bounds
-- breaking: no
-- Lets an external worker of one customer replace the middle of a run's log, which is bounded.

-- only: postgres
CREATE FUNCTION tenant_rules_0062()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, 'customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('run_logs', 'SELECT, INSERT, UPDATE, DELETE')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
