-- migration: repairs
-- breaking: no
-- Flows opened by hand, and execution ids that outlive their flows.

-- both
ALTER TABLE flows ADD COLUMN by_hand boolean NOT NULL DEFAULT FALSE;
CREATE INDEX alerts_open_of_subject ON alerts (subject) WHERE state <> 'resolved';

-- Written when a flow is pruned: a repeated report of the same execution must not open a new one.
CREATE TABLE completion_ids (
    customer bigint NOT NULL,
    processor bigint NOT NULL,
    execution_id text NOT NULL,
    partition text NOT NULL,
    mode text NOT NULL,
    flow_id bigint NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (customer, processor, execution_id, partition, mode)
);
CREATE INDEX completion_ids_by_time ON completion_ids (at);

-- only: postgres
CREATE FUNCTION tenant_rules_0015()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'completion_ids', 'SELECT', 'customer = (SELECT tenant_customer())', CAST(NULL AS text)
$$;
SELECT tenant_wall();
