-- migration: degraded_phases
-- breaking: no
-- Phases that started degraded are few: whether a flow has one is found without reading them all.

-- both
CREATE INDEX flow_phases_degraded ON flow_phases (flow_id) WHERE is_degraded;
