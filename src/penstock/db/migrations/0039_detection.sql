-- migration: detection
-- breaking: no
-- What forecasts and detections read: ended phases by mode, executions by hour, freshness of tables.

-- both
CREATE INDEX phase_completion_log_for_mode ON phase_completion_log (pipeline, mode, inserted_at);

-- Executions of a processor in one hour: how many completed, and the durations of the first of them.
CREATE TABLE execution_hours (
    processor bigint NOT NULL,
    customer bigint NOT NULL,
    hour_at bigint NOT NULL,
    completed integer NOT NULL,
    durations text NOT NULL,
    PRIMARY KEY (processor, customer, hour_at)
);
CREATE INDEX execution_hours_by_time ON execution_hours (hour_at);

-- The newest check of a freshness policy, which a pipeline declares for a table.
CREATE TABLE freshness (
    pipeline bigint NOT NULL,
    relation text NOT NULL,
    max_age_us bigint NOT NULL,
    checked_at bigint NOT NULL,
    newest_at bigint,
    status text NOT NULL CHECK (status IN ('FRESH', 'STALE', 'ERROR')),
    error text,
    PRIMARY KEY (pipeline, relation)
);

-- only: postgres
CREATE FUNCTION tenant_rules_0039()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges,
    '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('execution_hours', 'SELECT')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
