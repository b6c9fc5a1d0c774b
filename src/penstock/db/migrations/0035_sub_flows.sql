-- migration: sub_flows
-- breaking: no
-- The flows that runs wait for: one row for each wait of an attempt.

-- both
-- root_run_id: first attempt of the run that waits; parent_flow_id: flow of that run; resumed_at:
-- NULL while it waits.
CREATE TABLE sub_flows (
    run_id bigint NOT NULL,
    wait_key text NOT NULL,
    root_run_id bigint NOT NULL,
    customer bigint NOT NULL,
    flow_id bigint NOT NULL,
    parent_flow_id bigint,
    is_opened boolean NOT NULL,
    at bigint NOT NULL,
    resumed_at bigint,
    PRIMARY KEY (run_id, wait_key)
);
CREATE INDEX sub_flows_by_root ON sub_flows (root_run_id, wait_key);
CREATE INDEX sub_flows_by_flow ON sub_flows (flow_id);
CREATE INDEX sub_flows_of_parent ON sub_flows (parent_flow_id) WHERE resumed_at IS NULL;
CREATE INDEX sub_flows_by_time ON sub_flows (at);

-- only: postgres
CREATE FUNCTION tenant_rules_0035()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, 'customer = (SELECT tenant_customer())', NULL
FROM (VALUES
    ('sub_flows', 'SELECT, INSERT, UPDATE')
) AS v (relation, privileges)
$$;
SELECT tenant_wall();
