-- migration: ladder
-- breaking: no
-- Fallback times of phases, and the times at which services of the whole database last ran.

-- both
-- When the scheduler starts a phase that the cascade has not started; NULL: never, or it has started.
ALTER TABLE flow_phases ADD COLUMN fallback_at bigint;
CREATE INDEX flow_phases_fallback ON flow_phases (fallback_at, gate_id)
    WHERE fallback_at IS NOT NULL;

CREATE INDEX breakers_open ON breakers (customer, pipeline, partition, phase)
    WHERE opened_at IS NOT NULL;
