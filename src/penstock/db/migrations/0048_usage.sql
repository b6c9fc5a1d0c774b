-- migration: usage
-- breaking: no
-- Recorded usage: cost by day, budgets, load of pools, profiles of processors and their anomalies.

-- both
-- Sums of ended runs; pipeline 0 is the sum of a customer, customer 0 that of a pipeline.
CREATE TABLE usage_days (
    pipeline bigint NOT NULL,
    customer bigint NOT NULL,
    day_at bigint NOT NULL,
    runs bigint NOT NULL,
    duration_us bigint NOT NULL,
    bytes bigint NOT NULL,
    cost double precision NOT NULL,
    PRIMARY KEY (pipeline, customer, day_at)
);
CREATE INDEX usage_days_by_time ON usage_days (day_at);
CREATE INDEX usage_days_of_customer ON usage_days (customer, day_at);

-- What a pipeline or a customer may cost in a period. stopped_at: since when its runs are held back;
-- lifted_until: up to when a person allowed it to exceed the amount.
CREATE TABLE budgets (
    scope text NOT NULL CHECK (scope IN ('pipeline', 'customer')),
    subject bigint NOT NULL,
    period text NOT NULL CHECK (period IN ('day', 'month')),
    amount double precision NOT NULL CHECK (amount > 0),
    warn_percent double precision NOT NULL,
    is_hard boolean NOT NULL,
    stopped_at bigint,
    lifted_until bigint,
    updated_at bigint NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (scope, subject, period)
);

-- Ended runs of a pool by minute.
CREATE TABLE pool_minutes (
    pool bigint NOT NULL,
    minute_at bigint NOT NULL,
    runs bigint NOT NULL,
    duration_us bigint NOT NULL,
    PRIMARY KEY (pool, minute_at)
);
CREATE INDEX pool_minutes_by_time ON pool_minutes (minute_at);

-- The newest executions of a processor for a customer in a mode, as JSON.
CREATE TABLE processor_profiles (
    processor bigint NOT NULL,
    customer bigint NOT NULL,
    mode text NOT NULL,
    samples text NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (processor, customer, mode)
);
CREATE INDEX processor_profiles_by_time ON processor_profiles (updated_at);

-- Executions outside the quantiles of those before; ended_at: the next one was inside again.
CREATE TABLE anomalies (
    anomaly_id {{id}},
    processor bigint NOT NULL,
    customer bigint NOT NULL,
    mode text NOT NULL,
    measure text NOT NULL CHECK (measure IN ('duration', 'records', 'arrival')),
    run_id bigint NOT NULL,
    value double precision NOT NULL,
    low double precision,
    high double precision NOT NULL,
    median double precision NOT NULL,
    samples integer NOT NULL,
    at bigint NOT NULL,
    ended_at bigint
);
CREATE UNIQUE INDEX anomalies_once_while_open ON anomalies (processor, customer, mode, measure)
    WHERE ended_at IS NULL;
CREATE INDEX anomalies_by_time ON anomalies (at, anomaly_id);
CREATE INDEX anomalies_of_customer ON anomalies (customer, at);

-- only: postgres
CREATE FUNCTION tenant_rules_0048()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('usage_days', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())'),
    ('processor_profiles', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())'),
    ('anomalies', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())'),
    ('budgets', 'SELECT', '(SELECT tenant_customer()) IS NOT NULL AND scope = ''customer'' AND subject = (SELECT tenant_customer())'),
    ('pool_minutes', NULL, NULL)
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();
