-- migration: configs_of_pipeline
-- breaking: no
-- Registration finds the customers and schedules of a pipeline's active configs by an index.

-- both
CREATE INDEX configs_of_pipeline ON configs (pipeline) WHERE is_active;
