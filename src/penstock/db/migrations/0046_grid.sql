-- migration: grid
-- breaking: no
-- Partitions of a pipeline in order: what the grid of partitions and phases reads.

-- both
CREATE INDEX flows_for_grid ON flows (customer, pipeline, partition);
CREATE INDEX phase_completion_log_for_grid ON phase_completion_log (customer, pipeline, partition);
DROP INDEX phase_completion_log_for_partition;

-- Customers in trouble: configs that fail, and those that were switched off.
CREATE INDEX config_health_failing ON config_health (config_id) WHERE consecutive_failures > 0;
CREATE INDEX configs_inactive ON configs (customer) WHERE NOT is_active;
