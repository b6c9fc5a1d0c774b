-- migration: queued_flows
-- breaking: no
-- The deadline and the service level of a flow that waits for the flow before it count from its begin.

-- both
ALTER TABLE flows ADD COLUMN began_at bigint;
