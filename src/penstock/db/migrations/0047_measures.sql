-- migration: measures
-- breaking: no
-- What rules of alerts measure: counts of processes by minute, backlogs over time.

-- both
-- Counts that processes report: requests by class of status (http), checks of gates by the upper
-- bound of their time in milliseconds (gate_check).
CREATE TABLE process_minutes (
    metric text NOT NULL,
    minute_at bigint NOT NULL,
    bucket text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (metric, minute_at, bucket)
);
CREATE INDEX process_minutes_by_time ON process_minutes (minute_at);

-- Backlogs of subscriptions, a sample every five minutes.
CREATE TABLE backlog_samples (
    subscription bigint NOT NULL,
    at bigint NOT NULL,
    backlog bigint NOT NULL,
    PRIMARY KEY (subscription, at)
);
CREATE INDEX backlog_samples_by_time ON backlog_samples (at);
INSERT INTO counters (name, value) VALUES ('backlogs_sampled_at', 0);

CREATE INDEX overrides_by_time ON overrides (approved_at);

-- only: postgres
CREATE FUNCTION tenant_rules_0047()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('process_minutes', NULL, NULL),
    ('backlog_samples', NULL, NULL)
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();
