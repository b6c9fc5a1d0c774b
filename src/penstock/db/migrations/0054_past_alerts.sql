-- migration: past_alerts
-- breaking: no
-- What the execution log needs of deleted alerts: which rule reported which subject, and when. Kept
-- as long as the executions.

-- both
CREATE TABLE past_alerts (
    alert_id bigint PRIMARY KEY,
    customer bigint,
    subject_kind text NOT NULL,
    subject bigint NOT NULL,
    rule text NOT NULL,
    opened_at bigint NOT NULL,
    last_at bigint NOT NULL,
    phase text,
    processor text
);
CREATE INDEX past_alerts_of_subject ON past_alerts (subject_kind, subject);
CREATE INDEX past_alerts_by_time ON past_alerts (last_at);

-- only: postgres
CREATE FUNCTION tenant_rules_0054()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'past_alerts', 'SELECT', 'customer = (SELECT tenant_customer())', CAST(NULL AS text)
$$;
SELECT tenant_wall();
