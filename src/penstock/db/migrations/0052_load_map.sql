-- migration: load_map
-- breaking: no
-- The load map counts active configs by their schedule in an index, without reading the configs.

-- both
CREATE INDEX configs_by_schedule ON configs (schedule_type, cadence, pipeline, offset_us, config_id)
    WHERE is_active AND cadence IS NOT NULL;
