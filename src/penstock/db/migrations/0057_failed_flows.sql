-- migration: failed_flows
-- breaking: no
-- Flows that ended failed or degraded are listed by index; flows that end well write nothing to it.

-- both
CREATE INDEX flows_failed ON flows (flow_id) WHERE state IN ('FAILED', 'DEGRADED');
