-- Forecasts: ended phases of earlier flows, and durations of executions.

-- name: forecast_phases
-- The ended phases of the newest flows of a pipeline in a mode.
-- scope: system (durations of all customers; a tenant's forecasts are based on its own flows)
SELECT flow_id, phase, started_at, completed_at FROM phase_completion_log
WHERE pipeline = :pipeline AND mode = :mode AND inserted_at >= {{now}} - :window_us
    AND status IN ('complete', 'degraded') AND started_at IS NOT NULL
ORDER BY inserted_at DESC LIMIT :n;
