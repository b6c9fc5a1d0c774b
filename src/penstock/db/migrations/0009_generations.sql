-- migration: generations
-- breaking: no
-- The form of a pipeline's partitions, for the schedules of pipelines with one processor.

-- both
ALTER TABLE pipelines ADD COLUMN partition_rule text;
